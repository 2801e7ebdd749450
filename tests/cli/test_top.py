"""``kerf top`` printed once, and whether it is: on dumps, in pipes and on terminals."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
import yaml

from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.cluster.top_state import build_reading, choose_pause, draw_nodes, explain_more
from kerf_dra.driver.cli.cluster.top_text import describe_free, describe_row, format_rows
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.diagnostics.overview.cluster_overview import Scope
from tests.diagnostics import vendor_slices
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    placed_pod,
    pod,
    replace,
    report_devices,
    state,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

Run = Callable[..., tuple[int, str, str]]
HOSTILE = "[red]\x1b[2J\x1b]0;owned\x07\u202eevil\nline[/red]"
"""Markup of Textual, escape sequences that clear a screen and name a window, a change of direction, a line break."""


def busy() -> ClusterState:
    """Two nodes with a card each, three claims with pods, and two pods that wait for more than is free."""
    now = gpu_cluster(nodes=2)
    now = allocate_claims(now, claim("web", "1g-10gb"), claim("train", "3g-40gb"), on="node-1")
    now = allocate_claims(now, claim("batch", "4g-40gb"), on="node-2")
    running = [placed_pod(name, name, phase="Running") for name in ("web", "train")]
    running.append(placed_pod("batch", "batch", on="node-2", phase="Running"))
    waiting = (claim("big", "whole"), claim("bigger", "whole", "whole"))
    return replace(now, claims=(*now.claims, *waiting), pods=(*running, pod("p", "big"), pod("q", "bigger")))


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return written(busy(), tmp_path)


def written(now: ClusterState, folder: Path) -> str:
    (folder / "cluster.json").write_bytes(encode_dump(now, compress=False))
    return str(folder / "cluster.json")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_it_says_who_holds_what_what_is_free_why_one_waits_and_what_would_make_room(run: Run, dump: str) -> None:
    code, out, err = run("top", "--once", "--from", dump)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "2 nodes, 2 cards, 5 claims, 2 waiting; read 08:00:00 UTC"
    assert "node-2  gpu-0  [ a a a a . . . . ]  a = default/batch  . = free" in lines
    assert "h100-80gb-sxm: free 5 1g.10gb, or 2 1g.10gb+me, or 3 1g.20gb, or 2 2g.20gb, or 1" in lines
    [train] = [line.split() for line in lines if line.startswith("default/train")]
    assert train == ["default/train", "train", "-", "allocated", "node-1", "gpu-0-3g-40gb-at-0"]
    at = lines.index("claim default/big: it fits on none of 2 nodes")
    assert " ".join(" ".join(lines[at + 1 : at + 5]).split()).startswith(
        "on node-1, node-2: claim default/big, request r0: 1 device matches, but what it needs is taken (counters) "
        "-> it would fit if these claims ended on node-2: default/batch (pod default/batch)"
    )


def test_what_it_shares_with_frag_and_why_has_their_shape(run: Run, dump: str) -> None:
    code, out, _ = run("top", "--from", dump, "-o", "json")
    assert code == 0
    document, frag = json.loads(out), json.loads(run("frag", "--from", dump, "-o", "json")[1])
    shared = ("cards", "sizes", "unknown_cards", "counter_sets", "whole_devices")
    assert {key: document[key] for key in shared} == {key: frag[key] for key in shared}
    claims = {each["subject"]["name"]: each for each in document["claims"]}
    assert claims["big"]["why"] == json.loads(run("why", "claim", "big", "--from", dump, "-o", "json")[1])
    assert claims["web"]["why"] is None
    assert yaml.safe_load(run("top", "--from", dump, "-o", "yaml")[1]) == document
    assert [*document] == ["kubernetes", "gathered_at", "nodes", *shared, "claims", "forbidden_lists"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--nodes", "node-2"), 0, "1 node, 1 card, 3 claims, 2 waiting"),
        (("--nodes", "other"), 2, "no node is called 'other'"),
        (("-n", "elsewhere"), 0, "no claim, and no pod waits for devices"),
        (("--context", "x"), 2, "--from reads a file"),
    ],
)
def test_options_choose_a_part_of_the_cluster(
    run: Run, dump: str, arguments: Iterable[str], code: int, message: str
) -> None:
    found, out, err = run("top", "--from", dump, *arguments)
    assert found == code
    assert message in out + err


def test_more_waiting_claims_than_are_explained_are_counted(run: Run, tmp_path: Path) -> None:
    now = gpu_cluster()
    now = replace(now, claims=tuple(claim(f"c{number:02}", "whole", "whole") for number in range(23)))
    _, out, _ = run("top", "--from", written(now, tmp_path))
    assert out.count("it does not fit on the only node") == 20
    assert "3 more claims waiting: `kerf why pods -A` says why each does" in out


def test_other_drivers_cards_are_drawn_and_what_contradicts_itself_is_said(run: Run, tmp_path: Path) -> None:
    published = [
        *vendor_slices.nvidia_slices("node-1", 2),
        *vendor_slices.intel_slices("node-2"),
        *vendor_slices.dranet_slices("node-2"),
    ]
    now = state(node("node-1"), node("node-2"), published=published, classes=vendor_slices.CLASSES)
    now = allocate_claims(now, claim("mig", "mig.nvidia.com"), on="node-1")
    [mig] = now.claims
    allocation = mig.status.allocation
    assert allocation is not None
    [result] = allocation.devices.results
    other = replace(result, device="gpu-0")  # whose counters are those of the partition, too
    twice = replace(
        mig,
        metadata=replace(mig.metadata, name="twice", uid="twice"),
        status=replace(
            mig.status, allocation=replace(allocation, devices=replace(allocation.devices, results=(other,)))
        ),
    )
    code, out, _ = run("top", "--from", written(replace(now, claims=(mig, twice)), tmp_path))
    assert code == 0
    assert "! = held more than once (default/mig, default/twice)" in " ".join(out.split())
    assert "gpu-1-counter-set" in out
    assert "dra.net" in out
    assert "gpu.intel.com: 2 of 2 whole devices free" in out


def test_a_cluster_without_slices_is_said_to_have_no_card(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("top", "--from", written(state(node("node-1"), published=()), tmp_path))
    assert code == 0
    assert out.splitlines()[:2] == ["1 node, 0 pools, 0 claims, 0 waiting; read 08:00:00 UTC", "no card is published"]


def test_nothing_of_a_name_reaches_the_terminal_but_what_can_be_printed(run: Run, tmp_path: Path) -> None:
    now = busy()
    named = tuple(
        replace(each, metadata=replace(each.metadata, name=f"{HOSTILE}{number}"))
        for number, each in enumerate(now.claims)
    )
    _, out, _ = run("top", "--from", written(replace(now, claims=named), tmp_path))
    assert "[red]" in out, "markup of others is text"
    assert all(line.isprintable() for line in out.splitlines())


def test_names_are_whole_in_the_table_however_long(run: Run, tmp_path: Path) -> None:
    long = "n" * 253
    now = replace(gpu_cluster(), claims=(claim(long, "whole"), claim("short", "whole")))
    _, out, _ = run("top", "--from", written(now, tmp_path))
    assert f"default/{long}  " in out


def with_idle_claims() -> ClusterState:
    """The busy cluster, in which one claim is idle for three hours, one is in use, and of one nothing is known."""
    now = report_devices(busy(), "train", {"sampled": True, "idleSince": "2026-11-21T05:00:00Z"})
    return report_devices(now, "web", {"sampled": True})


def test_a_claim_that_does_not_use_its_devices_is_shown_as_idle_for_how_long(run: Run, tmp_path: Path) -> None:
    file = written(with_idle_claims(), tmp_path)
    _, out, _ = run("top", "--once", "--from", file)
    lines = out.splitlines()
    assert lines[0] == "2 nodes, 2 cards, 5 claims, 2 waiting, 1 idle; read 08:00:00 UTC"
    states = {line.split("  ")[0]: line for line in lines if line.startswith("default/")}
    assert "  idle 3 h  " in states["default/train"]
    assert "  allocated  " in states["default/web"]
    assert "  allocated  " in states["default/batch"]
    [train] = [row for row in json.loads(run("top", "--from", file, "-o", "json")[1])["claims"] if row["idle"]]
    assert (train["subject"]["name"], train["state"], train["idle"]["seconds"]) == ("train", "allocated", 10800)


def test_the_chosen_row_says_since_when_and_which_of_its_devices_are_idle() -> None:
    rows = build_reading(with_idle_claims(), Scope()).overview.claims
    about = {row.subject.name: " ".join(" ".join(describe_row(row, 79)).split()) for row in rows}
    assert "allocated, idle for 3 h, since 2026-11-21T05:00:00Z, pod train, on node-1" in about["train"]
    assert "idle" not in about["web"]


@pytest.mark.parametrize("width", [40, 59, 60, 80, 200])
def test_no_row_is_wider_than_the_terminal(width: int) -> None:
    now = with_idle_claims()
    long = replace(now.claims[0], metadata=ObjectMeta(name="n" * 253, namespace="s" * 63), status=now.claims[0].status)
    reading = explain_more(build_reading(replace(now, claims=(long, *now.claims)), Scope()), 9)
    header, lines = format_rows(reading.overview.claims, width)
    assert len(lines) == 6
    assert max(map(len, [header, *lines])) <= width
    assert ("WHY" in header) is (width >= 60)
    assert any("…" in line for line in lines)
    assert max(map(len, describe_free(reading.overview, width))) <= width


def test_a_claim_keeps_its_color_and_a_node_its_lines_when_others_change() -> None:
    now = busy()
    before = build_reading(now, Scope())
    more = allocate_claims(now, *(claim(f"more-{number}", "1g-10gb") for number in range(2)), on="node-1")
    after = build_reading(more, Scope(), before)
    assert after.colors.items() > before.colors.items()
    last = [line for line in draw_nodes(before, 80) if "node-2" in line]
    assert last == [line for line in draw_nodes(after, 80) if "node-2" in line]


def test_reports_stay_until_their_claims_no_longer_wait_and_are_made_once_for_a_reading() -> None:
    first = explain_more(build_reading(busy(), Scope()), 1)
    assert [key.name for key in first.reports] == ["big"]
    second = explain_more(first, 1)
    assert {key.name for key in second.reports} == {"big", "bigger"}
    assert explain_more(second, 9).explained == second.explained
    now = busy()
    without_big = replace(now, claims=tuple(each for each in now.claims if each.metadata.name != "big"))
    third = build_reading(without_big, Scope(), second)
    assert {row.subject.name for row in third.overview.claims if row.why} == {"bigger"}


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.01, 3.0), (0.3, 3.0), (20.0, 180.0)])
def test_a_cluster_is_listed_for_a_tenth_of_the_time_at_most(took_s: float, pause_s: float) -> None:
    assert choose_pause(took_s) == pause_s


class Screen:
    """A terminal of a process, and what it has been sent."""

    def __init__(self, *arguments: str, without: str = "", environment: Mapping[str, str] | None = None) -> None:
        self._end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        hidden = f"sys.modules[{without!r}] = None; " if without else ""
        code = f"import sys; {hidden}from kerf_dra.driver.cli import main; sys.exit(main(sys.argv[1:]))"
        known = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code, *arguments],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**known, "TERM": "xterm-256color", **(environment or {})},
        )
        os.close(other)
        self.text = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        while (found := re.search(pattern, self.text, re.DOTALL)) is None:
            self.text += os.read(self._end, 65536).decode(errors="replace")  # at the end OSError, and the test fails
        return found

    def press(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def close(self) -> int:
        """Wait until the process has ended and return its exit code."""
        try:
            while data := os.read(self._end, 65536):
                self.text += data.decode(errors="replace")
        except OSError:  # Linux says so that the other end is closed
            pass
        os.close(self._end)
        return self._process.wait()


COLOR = re.compile(r"\x1b\[[0-9;]*\b(?:[34][0-8]|9[0-7]|10[0-7])\b[0-9;]*m")
OTHER_SCREEN = "\x1b[?1049h"


@pytest.mark.parametrize(
    ("environment", "has_colors"), [({}, True), ({"NO_COLOR": "1"}, False), ({"FORCE_COLOR": "0"}, False)]
)
def test_on_a_terminal_it_is_live_until_q(dump: str, environment: dict[str, str], has_colors: bool) -> None:
    screen = Screen("top", "--from", dump, environment=environment)
    screen.read_until(re.escape(OTHER_SCREEN) + ".*default/train.*quit")
    screen.press("q")
    assert screen.close() == 0
    assert (COLOR.search(screen.text) is not None) is has_colors


@pytest.mark.parametrize(
    ("arguments", "environment"), [(("--once",), {}), ((), {"TERM": "dumb"})], ids=["once", "dumb"]
)
def test_a_terminal_gets_it_once_if_it_is_asked_for_or_cannot_move_its_cursor(
    dump: str, arguments: Iterable[str], environment: dict[str, str]
) -> None:
    screen = Screen("top", "--from", dump, *arguments, environment=environment)
    assert screen.close() == 0
    assert OTHER_SCREEN not in screen.text
    assert "default/train" in screen.text
    assert ("\x1b[" in screen.text) is (environment == {})


@pytest.mark.parametrize("without", ["textual", "rich"])
def test_without_the_extra_it_says_what_to_install_and_prints_it_once_if_asked(dump: str, without: str) -> None:
    live = Screen("top", "--from", dump, without=without)
    assert live.close() == 2
    said = " ".join(live.text.split())
    assert "pip install '.[view]'" in said
    assert "`kerf top --once`" in said
    assert OTHER_SCREEN not in live.text
    once = Screen("top", "--from", dump, "--once", without=without)
    assert once.close() == 0
    assert "default/train" in once.text
