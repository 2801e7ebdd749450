"""What Kerf answers to mistakes of users: what is wrong, where it is, and what to do (``data/mistakes.yaml``).

Six of the 25 mistakes had no answer, or a misleading one, and eight had no next step: each scores three of three.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.driver.cli import main

_DATA: Final = Path(__file__).parent / "data" / "mistakes.yaml"
MISTAKES: Final[dict[str, dict[str, str]]] = {
    each["id"]: each for each in yaml.safe_load(_DATA.read_text(encoding="utf-8"))
}
AT_ONCE: Final = [name for name, each in MISTAKES.items() if each["seen"] == "demo"]
IN_CLUSTER: Final = [name for name, each in MISTAKES.items() if each["seen"] == "cluster"]
_DEADLINE_S: Final = 480
"""Far above the 20 s it takes, for machines that run everything at once."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def missing_parts(answer: str, mistake: dict[str, str]) -> list[str]:
    """Return which of what, where and do an answer lacks; lines are broken anywhere."""
    flat = " ".join(answer.split())
    return [part for part in ("what", "where", "do") if " ".join(mistake[part].split()) not in flat]


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, str]]:
    """What ``kerf demo`` says of the pods of all mistakes that only a cluster can see, by mistake."""
    with tempfile.TemporaryDirectory(prefix="kd", dir="/tmp") as folder:
        file = Path(folder) / "mistakes.yaml"
        file.write_text("---\n".join(MISTAKES[name]["documents"] for name in IN_CLUSTER), encoding="utf-8")
        (Path(folder) / "run").mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "kerf_dra.driver.cli", "demo", "--nodes", "1", "-f", file, "-o", "json"],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
            env={**os.environ, "TMPDIR": f"{folder}/run"},
        )
        assert done.returncode == 1, done.stderr
        yield _sort_by_pod(json.loads(done.stdout))


def _sort_by_pod(report: dict[str, Any]) -> dict[str, str]:
    said = {each["pod"].rpartition("/")[2]: "\n".join(each["why"]) for each in report["waiting"]}
    for sentence in (*report["warnings"], *report["notes"]):
        pods, _, text = sentence.removeprefix("pod ").partition(": ")
        for pod in pods.split(", "):
            name = pod.rpartition("/")[2]
            said[name] = f"{said.get(name, '')}\n{text}"
    return said


def test_there_are_25_mistakes_each_seen_in_one_place() -> None:
    assert len(MISTAKES) == len(AT_ONCE) + len(IN_CLUSTER) == 25


@pytest.mark.parametrize("name", AT_ONCE, ids=[MISTAKES[name]["mistake"] for name in AT_ONCE])
def test_a_mistake_in_a_document_is_answered_before_anything_starts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mistake.yaml"
    file.write_text(MISTAKES[name]["documents"], encoding="utf-8")
    assert main(["demo", "-f", str(file)]) == 2
    output = capsys.readouterr()
    assert missing_parts(output.err, MISTAKES[name]) == []
    assert output.err.startswith(str(file))
    assert output.out == ""


@pytest.mark.parametrize("name", IN_CLUSTER, ids=[MISTAKES[name]["mistake"] for name in IN_CLUSTER])
def test_a_mistake_that_only_a_cluster_sees_is_answered_for_its_pod(name: str, answers: dict[str, str]) -> None:
    assert name in answers, "nothing was said of its pod"
    assert missing_parts(answers[name], MISTAKES[name]) == []


@pytest.mark.parametrize("amount", ["20GB", "20g", "20 Gb"])
def test_an_amount_with_a_unit_of_elsewhere_is_answered_with_those_of_kubernetes(
    amount: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claim", "gpu", "--memory", amount]) == 2
    answer = capsys.readouterr().err
    assert (
        missing_parts(
            answer, {"what": f"{amount!r} is not a quantity", "where": "'--memory'", "do": "did you mean 20G or 20Gi?"}
        )
        == []
    )


REFUSED: Final = """
apiVersion: v1
kind: Pod
metadata: {name: twice}
spec:
  containers: [{name: main, image: busybox}, {name: main, image: busybox}]
"""


def test_what_only_the_api_server_refuses_is_answered_without_logs(tmp_path: Path) -> None:
    """The logs of Kerf's programs, which have nothing to do with it, hid the answer."""
    file = tmp_path / "pod.yaml"
    file.write_text(REFUSED, encoding="utf-8")
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "demo", "--nodes", "1", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert 'Pod "twice" is invalid: spec.containers[1].name' in line
    assert "FAILED The API server refuses a manifest." in done.stdout


def test_an_answer_without_a_next_step_would_be_noticed() -> None:
    mistake = MISTAKES["m01"]
    assert missing_parts(f"{mistake['where']}: {mistake['what']}", mistake) == ["do"]
    assert missing_parts("OK", mistake) == ["what", "where", "do"]
