"""A card's survey becomes what is published in few steps, so that a reader finds each of them."""

import traceback
from pathlib import Path

import anyio
import pytest

from kerf_dra.driver import kubeletplugin
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claims.repair.node import SURVEYS_S, Node
from tests.kubeletplugin.observed_state import ObservedState
from tests.runtime.virtual_time import VIRTUAL_TIME

PLUGIN = str(Path(kubeletplugin.__file__).resolve().parent)
MOST = 12


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def list_functions() -> list[str]:
    """List the functions of the plugin on the stack, the latest first."""
    codes = [frame.f_code for frame, _ in traceback.walk_stack(None)]
    return [code.co_qualname for code in codes if str(Path(code.co_filename).resolve()).startswith(PLUGIN)]


class TracedCluster(FakeCluster):
    """A cluster that notes how it is reached."""

    path: tuple[str, ...] = ()

    def publish(self, devices: object) -> None:
        self.path = tuple(list_functions())
        super().publish(devices)  # type: ignore[arg-type]


async def test_a_survey_and_its_publication_take_few_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surveyed: list[str] = []

    def note_surveyed(self: ObservedState, card_uuid: str) -> None:
        del self, card_uuid
        surveyed[:] = list_functions()

    cluster = TracedCluster()
    node = Node(tmp_path, cluster=cluster)
    monkeypatch.setattr("kerf_dra.driver.kubeletplugin.inventory.node_state.NodeState.note_surveyed", note_surveyed)
    async with node.running():
        await anyio.sleep(2 * SURVEYS_S)
    assert surveyed
    assert surveyed[-1] == "HardwareSurveyor._run_survey"
    assert cluster.path
    assert len(surveyed) + len(cluster.path) <= MOST, (surveyed, cluster.path)
