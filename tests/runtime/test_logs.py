import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from kerf_dra.driver.runtime import logs

LOGGER = logging.getLogger("kerf_dra.driver.kube.informer")


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def configured(format_: logs.Format, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level=level, format=format_, stream=stream)
    return stream


def only_line(stream: io.StringIO) -> dict[str, Any]:
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    line: dict[str, Any] = json.loads(lines[0])
    return line


def test_a_json_line_has_time_level_logger_message_and_the_fields_of_its_context() -> None:
    stream = configured("json")
    with logs.context(claim="default/a", claim_uid="1-2"), logs.context(node="n1"):
        LOGGER.info("prepared %d devices", 2)
    line = only_line(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "driver.kube.informer",
        "message": "prepared 2 devices",
        "claim": "default/a",
        "claim_uid": "1-2",
        "node": "n1",
    }


def test_a_text_line_is_readable_and_ends_with_the_fields() -> None:
    stream = configured("text")
    with logs.context(pool="n1/gpu"):
        LOGGER.warning("slow")
    _, rest = stream.getvalue().split(" ", 1)
    assert rest == "WARNING driver.kube.informer: slow  pool=n1/gpu\n"


def test_fields_end_with_their_context() -> None:
    stream = configured("json")
    with logs.context(claim="default/a"):
        pass
    LOGGER.info("after")
    assert "claim" not in only_line(stream)


async def test_fields_reach_the_tasks_started_inside_and_no_others() -> None:
    stream = configured("json")

    async def work() -> None:
        LOGGER.info("working")

    async with anyio.create_task_group() as group:
        with logs.context(request_id="r1"):
            group.start_soon(work)
        group.start_soon(work)
    assert sorted(json.loads(line).get("request_id", "") for line in stream.getvalue().splitlines()) == ["", "r1"]


@pytest.mark.parametrize("format_", ["json", "text"])
def test_an_error_carries_its_traceback(format_: logs.Format) -> None:
    stream = configured(format_)
    try:
        raise ValueError("broken")
    except ValueError:
        LOGGER.exception("failed")
    assert "failed" in stream.getvalue()
    assert "ValueError: broken" in stream.getvalue()


def test_what_a_message_quotes_begins_no_line_of_its_own() -> None:
    """A claim's field with a line break wrote a line that looked like Kerf's; so could the text of an exception."""
    stream = configured("text")
    forged = "a\n2026-11-20T08:30:00.123Z ERROR   driver: forged \x1b[2J\x9b1m\u202e"
    with logs.context(device=forged):
        LOGGER.warning("refused: %s", forged)
    try:
        raise ValueError(forged)
    except ValueError:
        LOGGER.exception("failed")
    text = stream.getvalue()
    assert {one for one in text if not one.isprintable()} == {"\n"}
    begun = [line for line in text.splitlines() if not line.startswith("  ")]
    assert [line.split()[1:3] for line in begun] == [
        ["WARNING", "driver.kube.informer:"],
        ["ERROR", "driver.kube.informer:"],
    ]
    assert "  Traceback (most recent call last):\n" in text


def test_a_json_line_is_printable_and_has_what_was_logged() -> None:
    """``kubectl logs`` shows it on a terminal, some of which obey the control characters above ASCII, too.

    A file's name with bytes that are no UTF-8 became a traceback in place of its line.
    """
    stream = configured("json")
    foreign = "a\n\x1b[2J\x7f\x9b1m\u202eä \U000e0041 \udcff"
    with logs.context(device=foreign):
        LOGGER.warning(foreign)
    assert stream.getvalue().removesuffix("\n").isprintable()
    assert (only_line(stream)["message"], only_line(stream)["device"]) == (foreign, foreign)


TOKEN = "eyJhbGciOi.eyJpc3MiOiJrd.c2lnbmF0dXJl"


@pytest.mark.parametrize("format_", ["json", "text"])
@pytest.mark.parametrize("secret", [f"Authorization: Bearer {TOKEN}", "authorization: bearer opaque-token", TOKEN])
def test_tokens_are_cut_out_whoever_logs_them(format_: logs.Format, secret: str) -> None:
    stream = configured(format_)
    try:
        raise ValueError(f"cause: {secret}")
    except ValueError:
        LOGGER.exception("refused: %s", secret)
    assert TOKEN not in stream.getvalue()
    assert "opaque-token" not in stream.getvalue()
    assert stream.getvalue().count("[secret]") >= 2


def test_lines_below_the_level_are_left_out_and_a_later_configuration_replaces_the_earlier() -> None:
    earlier = configured("json", "debug")
    later = configured("json", "warning")
    LOGGER.info("not this")
    LOGGER.warning("this")
    assert earlier.getvalue() == ""
    assert only_line(later)["message"] == "this"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configured("json", "loud")
