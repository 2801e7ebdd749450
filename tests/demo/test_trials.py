"""Where an example does not fit, earlier ones are deleted; one that is only slow is waited for."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.demo.cluster_picture import Explanation
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.environment import DemoEnvironment, WaitTimeoutError
from kerf_dra.driver.demo.manifests import Manifest
from kerf_dra.driver.demo.report import PodReport
from kerf_dra.driver.demo.scenario import Scenario
from kerf_dra.driver.kube.http.client import Client

NAMES = ("early", "late")


class RecordingDisplay(Display):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


class Crowded:
    """An environment in which so many pods fit; each runs after so many waits for it."""

    def __init__(self, *, room: int, patience: int) -> None:
        self.room = room
        self.patience = patience
        self.there: list[str] = []
        self.waits = dict.fromkeys(NAMES, 0)
        self.settings = SimpleNamespace(step_timeout_s=60.0)
        self.pods = SimpleNamespace(store={})
        self.claims = SimpleNamespace(store={})

    async def apply(self, objects: Iterable[dict[str, Any]]) -> None:
        self.there += [name for body in objects if (name := body["metadata"]["name"]) not in self.there]

    async def delete(self, objects: Iterable[dict[str, Any]]) -> None:
        self.there = [name for name in self.there if name not in {body["metadata"]["name"] for body in objects}]

    async def wait_for(self, what: str, is_true: Callable[[], bool], *_: object, **__: object) -> None:
        for name in self.there:
            self.waits[name] += 1
        if not is_true():
            raise WaitTimeoutError(f"no sign of {what}")

    def waiting(self, names: Collection[str]) -> dict[str, str]:
        return {f"default/{name}": "no node has a device for it" for name in self.there[self.room :]}

    def pod_reports(self) -> list[PodReport]:
        runs = {name for name in self.there[: self.room] if self.waits[name] >= self.patience}
        phases = {name: "Running" if name in runs else "Pending" for name in self.there}
        return [PodReport(namespace="default", name=name, node="", phase=phase) for name, phase in phases.items()]


async def explain_nothing(_client: Client, _pods: Sequence[ObjectRef], _width: int) -> list[Explanation]:
    return []


@pytest.mark.parametrize(
    ("room", "patience", "makes_room"), [(2, 1, False), (2, 2, False), (1, 1, True)], ids=["room", "slow", "full"]
)
async def test_earlier_examples_make_room_only_where_the_scheduler_finds_none(
    room: int, patience: int, makes_room: bool
) -> None:
    """On a busy machine an example that took six seconds was left out as one that this hardware cannot run."""
    examples = [
        [Manifest(file=Path(name), document=1, body={"kind": "Pod", "metadata": {"name": name}})] for name in NAMES
    ]
    environment = cast("DemoEnvironment", Crowded(room=room, patience=patience))
    display = RecordingDisplay()
    story = Scenario(
        environment=environment,
        display=display,
        explain=explain_nothing,
        manifests=[one for example in examples for one in example],
    )
    assert await story._examples(examples) == {}
    assert [pod.name for pod in story.report.pods] == list(NAMES)
    assert bool(display.lines) == makes_room
