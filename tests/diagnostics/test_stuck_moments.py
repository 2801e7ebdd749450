"""The moments in which a pod is stuck, by the table in docs/diagnostics.md: each has a code, an exit code and words."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump, redact
from kerf_dra.driver.diagnostics.explain.report import CODES
from tests.diagnostics import test_container_devices as containers
from tests.diagnostics import test_deletion as deletion
from tests.diagnostics import test_device_parts as parts
from tests.diagnostics import test_node_events as cards
from tests.diagnostics import test_pod_start as starts
from tests.fakes.cluster_states import REFUSED, gpu_cluster, prepare_failure, replace, templated_pod
from tests.fakes.kubelet_texts import KILL_TEXTS, PREPARE_TEXTS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

PAGE: Final = Path(__file__).parents[2] / "docs" / "diagnostics.md"
ROW: Final = re.compile(r"^\| ([^|]+) \| `([a-z-]+)` \| ([01]) \|$", re.MULTILINE)
WIDTH: Final = 80


def missing_template() -> ClusterState:
    return replace(gpu_cluster(), pods=(templated_pod("p", "refused"),))


def kill(name: str) -> Callable[[], ClusterState]:
    text, _ = KILL_TEXTS[name]
    return lambda: replace(deletion.ending(deletion.SOON, deletion.ENDED), events=(deletion.kill_failure(text),))


def prepare(name: str) -> Callable[[], ClusterState]:
    return starts.failing(PREPARE_TEXTS[name][0])


MOMENTS: Final[Mapping[str, Callable[[], ClusterState]]] = {
    "another program has removed a partition that a running pod has": lambda: containers.two_claims(
        containers.RUNS,
        containers.container("b", running={}, health=containers.unhealthy("b", "it is gone; delete the pod")),
        phase="Running",
    ),
    "a CDI name of a container has no file": lambda: containers.SOURCES["the state of a container"](containers.CDI),
    "a device node of a container is missing": lambda: containers.SOURCES["an event, while the status has no message"](
        containers.NODE
    ),
    "a hook of a container's CDI file fails": lambda: containers.SOURCES["a container that has ended before it ran"](
        containers.HOOK
    ),
    "a pod names its node, and its claim is not allocated": containers.bound,
    "the kubelet does not reach the API server": prepare("1.37, an API server that the kubelet does not reach"),
    "the kubelet cannot write its state": prepare("1.37, a full disk"),
    "a volume of the pod cannot be mounted": lambda: replace(
        containers.two_claims(started=False), events=(containers.runtime_event("no such volume", "FailedMount"),)
    ),
    "the plugin refuses to prepare a claim": lambda: replace(starts.placed(), events=(prepare_failure("p", REFUSED),)),
    "a card is withdrawn for a partition of another program": lambda: cards.waiting(
        cards.event("InUseOutsideKerf", cards.MESSAGES["InUseOutsideKerf"])
    ),
    "a card is in quarantine": lambda: cards.waiting(
        cards.event("CardInQuarantine", cards.MESSAGES["CardInQuarantine"])
    ),
    "admission has refused the template of the pod's claim": missing_template,
    "the plugin has gone before the pod has ended": lambda: replace(
        deletion.ending(deletion.SOON, deletion.ENDED), plugin_pods=deletion.plugins("node-2")
    ),
    "the plugin does not answer the end of a pod": kill("the plugin is away"),
    "the container runtime does not end a container": kill("the runtime does not stop a container"),
    "a card and a part of it are given to two pods": lambda: parts.cluster(
        parts.given("p", "gpu-0"), parts.given("parts", "gpu-0-mig-0")
    ),
}


def rows() -> Mapping[str, tuple[str, str]]:
    return {name: (code, exit_code) for name, code, exit_code in ROW.findall(PAGE.read_text())}


def test_the_table_has_each_moment_that_is_tried_here() -> None:
    assert rows().keys() == MOMENTS.keys()
    assert {code for code, _ in rows().values()} <= CODES


def ask(now: ClusterState, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    dump = folder / "dump.json"
    dump.write_bytes(encode_dump(redact(now)))
    code = main(["why", "pod/p", "-n", "default", "--from", str(dump), *options])
    return code, click.unstyle(capsys.readouterr().out)


@pytest.mark.parametrize("moment", MOMENTS)
def test_each_stuck_moment_is_named_with_what_to_do_in_text_and_json(
    moment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, exit_code = rows()[moment]
    now = MOMENTS[moment]()
    found, text = ask(now, tmp_path, capsys)
    assert found == int(exit_code)
    assert [line for line in text.splitlines() if len(line) > WIDTH and " " in line.strip()] == []
    again, document = ask(now, tmp_path, capsys, "-o", "json")
    assert again == found
    causes = {cause["code"]: cause for cause in json.loads(document)["causes"]}
    assert code in causes
    assert causes[code]["message"].strip()
    assert causes[code]["next_step"].strip()
    assert causes[code]["objects"]
    assert f"{code}: " in text or f"({code})" in " ".join(text.split())
