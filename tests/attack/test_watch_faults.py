"""What a watch may tell an informer, from a server or proxy that is broken: rows of ``kinds.toml``."""

import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
import msgspec
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import UnreachableError, build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange
from tests.attack.kinds import cases
from tests.kube.identified import identified
from tests.kube.open_transport import OpenTransport
from tests.runtime.virtual_time import VIRTUAL_TIME

FAULTS: Final = 20
"""Watches in a row with the fault, before the server is repaired."""
LEAST_DELAY_S: Final = 0.4
"""Between two tries: an informer that asks more often adds to what the server suffers from."""
LONGEST_S: Final = 3600.0
LATER: Final = "ADDED later 900"
_EVENT: Final = re.compile(r"(ADDED|MODIFIED|DELETED) (\w+) (\w+)")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lines of a watch, bytes as ISO 8859-1; ``ADDED n 8`` stands for the event with node n at version 8."""

    lines: tuple[str, ...]
    times: int = 1
    """How often they are sent in one watch."""
    then: Literal["end", "break", "expire"] = "end"
    listed: tuple[str, ...] = ("n 7",)
    """The nodes of every list, with their versions."""
    knows: tuple[str, ...] = ("later", "n")
    """The names that the informer knows after the first event of the repaired server."""
    hears: tuple[str, ...] | None = None
    """What it told its handler until then, without repetitions; by default it does not matter."""
    least_s: float = FAULTS * LEAST_DELAY_S
    """The least time of those watches: where none of them brings anything, it asks less and less often."""


def encode(line: str) -> bytes:
    if found := _EVENT.fullmatch(line):
        type_, name, version = found.groups()
        node = identified("/api/v1/nodes", {"metadata": {"name": name, "resourceVersion": version}})
        line = json.dumps({"type": type_, "object": node})
    return line.encode("latin-1")


@dataclass
class FaultyServer(OpenTransport):
    """A Transport whose watches have the fault, the first so many of them."""

    fault: Fault
    watches: int = 0
    asked_from: list[str] = field(default_factory=list)
    """The resource versions of the watches."""

    async def call(self, request: HttpRequest) -> bytes:
        nodes = [dict(zip(("name", "resourceVersion"), node.split(), strict=True)) for node in self.fault.listed]
        items = [{"metadata": node} for node in nodes]
        return msgspec.json.encode(identified(request.path, {"metadata": {"resourceVersion": "7"}, "items": items}))

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        if not re.fullmatch("[0-9]{1,20}", request.query["resourceVersion"]):
            raise build_status_error(str(request), 400, b"invalid resource version")
        self.watches += 1
        self.asked_from.append(request.query["resourceVersion"])
        if self.watches > FAULTS:
            yield encode(LATER)
            await anyio.sleep_forever()
        for line in self.fault.lines * self.fault.times:
            yield encode(line)
        if self.fault.then == "break":
            raise UnreachableError(str(request), "the connection broke")
        if self.fault.then == "expire":
            yield b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}'


@pytest.mark.parametrize(
    "fault", cases("test_watch_faults.py::test_an_informer_outlives_it_and_asks_no_more_than_it_should", Fault)
)
async def test_an_informer_outlives_it_and_asks_no_more_than_it_should(
    fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    server, heard, repaired = FaultyServer(fault), dict[str, None](), anyio.Event()

    def hear(change: ObjectChange[Node]) -> None:
        heard[f"{'-' if change.new is None else '+'}{change.ref.name}"] = None
        if change.ref.name == "later":
            repaired.set()

    client = Client(Access(server="http://faulty"), user_agent="t/1", transport=server)
    informer = Informer(client, NODES, on_change=hear)
    began = anyio.current_time()
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(informer.run)
            await repaired.wait()
            group.cancel_scope.cancel()
    assert anyio.current_time() - began >= fault.least_s
    assert sorted(ref.name for ref in informer.store.refs()) == list(fault.knows)
    assert fault.hears is None or tuple(heard)[:-1] == fault.hears
    assert all(version for version in server.asked_from), "without a version a watch would begin anywhere"
    assert all(record.getMessage().isprintable() for record in caplog.records)
