"""Watches that lie without a sign, and stay open: rows of ``kinds.toml``."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec
import pytest

from kerf_dra.api.core.v1 import NODES
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.attack.kinds import cases
from tests.kube.open_transport import OpenTransport
from tests.runtime.virtual_time import VIRTUAL_TIME

HOUR_S: Final = 3600.0
LONGEST_S: Final = 9 * HOUR_S
"""Within a working day a list shows what the watch does not."""
MISSED: Final = "kerf_informer_missed_total"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Silence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first watch sends; ``MODIFIED n 8`` is such an event of node n at version 8, ``BOOKMARK 9`` one of 9."""

    now: tuple[str, ...]
    """The nodes that there are after the first list, with their versions."""
    misses: str
    """What is reported."""
    lines: tuple[str, ...] = ()
    ends_s: float = LONGEST_S
    """Seconds after which each watch ends."""


def node(name: str, version: str) -> dict[str, object]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": version}}


@dataclass
class SilentServer(OpenTransport):
    """A Transport whose lists are true, and whose watches send what the row says, and then nothing."""

    silence: Silence
    lists: int = 0
    watches: int = 0

    async def call(self, request: HttpRequest) -> bytes:
        self.lists += 1
        version, names = ("7", ("n 7",)) if self.lists == 1 else ("9", self.silence.now)
        items = [node(*name.split()) for name in names]
        metadata = {"resourceVersion": version}
        return msgspec.json.encode({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items})

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        self.watches += 1
        for line in self.silence.lines if self.watches == 1 else ():
            type_, *rest = line.split()
            yield msgspec.json.encode({"type": type_, "object": node(*([""] if type_ == "BOOKMARK" else []), *rest)})
        await anyio.sleep(self.silence.ends_s)


@pytest.mark.parametrize(
    "silence", cases("test_silent_watches.py::test_a_list_shows_within_a_day_what_the_watch_does_not", Silence)
)
async def test_a_list_shows_within_a_day_what_the_watch_does_not(
    silence: Silence, caplog: pytest.LogCaptureFixture
) -> None:
    server = SilentServer(silence)
    client = Client(Access(server="http://silent"), user_agent="t/1", transport=server)
    informer = Informer(client, NODES)
    before = REGISTRY.get_sample_value(MISSED, {"resource": "nodes"}) or 0
    with anyio.move_on_after(LONGEST_S):
        await informer.run()
    known = sorted(f"{value.metadata.name} {value.metadata.resource_version}" for value in informer.store.values())
    assert known == sorted(silence.now)
    assert informer.version == 9
    assert f"the watch of nodes has missed changes, which a list shows: {silence.misses}; " in caplog.text
    assert (REGISTRY.get_sample_value(MISSED, {"resource": "nodes"}) or 0) > before
    assert server.lists <= 5, "a few lists a day"
