"""The pods of a Deployment, a Job or a namespace, and the words with which ``kerf why`` is asked."""

import json
from pathlib import Path

import click
import pytest

from kerf_dra.api.core.v1 import ContainerState, ContainerStateWaiting, ContainerStatus
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.cluster.why import command
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump, redact
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.workload_pods import explain_waiting_pods, explain_workload
from tests.fakes.cluster_states import (
    REFUSED,
    allocate_claims,
    claim,
    gpu_cluster,
    owned,
    placed_pod,
    pod,
    prepare_failure,
    replace,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def busy() -> ClusterState:
    """Return a cluster with a Deployment's pods, one of which runs, cannot start and waits; and a Job's."""
    now = allocate_claims(gpu_cluster(), *(claim(name, "2g-20gb") for name in ("a", "b")))
    hashed = {"pod-template-hash": "5d4f"}
    return replace(
        now,
        claims=(*now.claims, claim("c", "7g-80gb"), claim("d", "1g-10gb")),
        pods=(
            owned(placed_pod("a", "a", phase="Running"), "ReplicaSet", "web-5d4f", **hashed),
            owned(placed_pod("b", "b"), "ReplicaSet", "web-5d4f", **hashed),
            owned(pod("c", "c"), "ReplicaSet", "web-5d4f", **hashed),
            owned(pod("d", "d"), "Job", "night-29400000"),
        ),
        events=(prepare_failure("b", REFUSED),),
    )


def test_the_pods_of_a_deployment_are_found_through_their_replica_set() -> None:
    answer = explain_workload(ClusterIndex(busy()), "Deployment", ObjectRef("default", "web"))
    assert answer.message == "2 of 3 pods with devices wait"
    assert [(report.subject.name, str(report.verdict)) for report in answer.pods] == [
        ("b", "cannot-start"),
        ("c", "does-not-fit"),
        ("a", "has-devices"),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "pods"),
    [("ReplicaSet", "web-5d4f", 3), ("Job", "night-29400000", 1), ("CronJob", "night", 1)],
)
def test_other_owners_are_found_by_their_kinds(kind: str, name: str, pods: int) -> None:
    assert len(explain_workload(ClusterIndex(busy()), kind, ObjectRef("default", name)).pods) == pods


def test_a_replica_set_without_a_deployment_is_not_taken_for_one() -> None:
    """Its name has a dash, and its pods no hash of a template."""
    now = replace(gpu_cluster(), claims=(claim("c", "1g-10gb"),), pods=(owned(pod("c", "c"), "ReplicaSet", "web-1"),))
    with pytest.raises(QueryError, match="there is no pod that requests devices of Deployment default/web"):
        explain_workload(ClusterIndex(now), "Deployment", ObjectRef("default", "web"))


def test_pods_that_wait_are_those_without_devices_and_those_whose_containers_cannot_start() -> None:
    # A pod that had its devices and no image was in no list of those that wait.
    now = busy()
    image = ContainerStatus(name="main", state=ContainerState(waiting=ContainerStateWaiting(reason="ErrImagePull")))
    ready = Condition(type="PodReadyToStartContainers", status="True")
    a, b, *others = now.pods
    has_no_image = replace(b, status=replace(b.status, conditions=(ready,), container_statuses=(image,)))
    answer = explain_waiting_pods(ClusterIndex(replace(now, pods=(a, has_no_image, *others))), "default")
    assert {report.subject.name: [str(cause.code) for cause in report.causes][:1] for report in answer.pods} == {
        "b": ["container-waiting"],
        "c": ["counters"],
        "d": ["scheduler"],
    }


def test_who_asks_about_a_job_without_pods_is_told_where_its_queue_is_explained() -> None:
    with pytest.raises(
        QueryError, match=r"kubectl describe job train -n default says why .* queued, for example by Kueue"
    ):
        explain_workload(ClusterIndex(gpu_cluster()), "Job", ObjectRef("default", "train"))


def test_a_job_whose_name_ends_with_a_word_is_of_no_cron_job() -> None:
    now = replace(gpu_cluster(), claims=(claim("c", "1g-10gb"),), pods=(owned(pod("c", "c"), "Job", "night-watch"),))
    with pytest.raises(QueryError, match="of CronJob default/night"):
        explain_workload(ClusterIndex(now), "CronJob", ObjectRef("default", "night"))


@pytest.fixture
def dump(tmp_path: Path) -> str:
    file = tmp_path / "dump.json"
    file.write_bytes(encode_dump(redact(busy())))
    return str(file)


@pytest.mark.parametrize(
    ("words", "code", "first"),
    [
        (["pod/a"], 0, "pod default/a: all claims have their devices and the pod is on node node-1"),
        (["po", "b"], 1, "pod default/b: it has its devices on node-1 and cannot start"),
        (["pods", "d"], 0, "pod default/d: devices for it are free on node-1"),
        (["Pod/c"], 1, "pod default/c: it does not fit on the only node"),
        (["pods"], 1, "namespace default: 3 of 4 pods with devices wait"),
        (["deploy", "web"], 1, "deployment default/web: 2 of 3 pods with devices wait"),
        (["deployments.apps/web"], 1, "deployment default/web: 2 of 3 pods with devices wait"),
        (["rs/web-5d4f"], 1, "replicaset default/web-5d4f: 2 of 3 pods with devices wait"),
        (["job/night-29400000"], 0, "job default/night-29400000: 1 of 1 pods with devices wait"),
        (["cj/night"], 0, "cronjob default/night: 1 of 1 pods with devices wait"),
        (["resourceclaim/a"], 0, "claim default/a: all claims have their devices"),
        (["claims", "c"], 1, "claim default/c: it does not fit on the only node"),
    ],
)
def test_kubectls_words_are_understood_and_the_worst_pod_decides(
    capsys: pytest.CaptureFixture[str], dump: str, words: list[str], code: int, first: str
) -> None:
    assert main(["why", *words, "--from", dump]) == code
    assert capsys.readouterr().out.splitlines()[0] == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["node/x"], "'node' is not a kind that uses devices"),
        (["deployment"], "name one Deployment: `kerf why deployment NAME`"),
        (["pod", "a", "b"], "name one Pod"),
        (["pod/"], "name one Pod"),
        (["deployment/nope"], "there is no pod that requests devices of Deployment default/nope"),
        (["deployment/wep"], "there is default/web"),
    ],
)
def test_words_that_say_nothing_are_bad_input(
    capsys: pytest.CaptureFixture[str], dump: str, words: list[str], message: str
) -> None:
    assert main(["why", *words, "--from", dump]) == 2
    assert message in capsys.readouterr().err


def test_the_document_of_several_pods_has_one_report_for_each(capsys: pytest.CaptureFixture[str], dump: str) -> None:
    main(["why", "pods", "--from", dump, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["subject", "message", "pods"]
    assert document["subject"] == {"kind": "Namespace", "namespace": "", "name": "default"}
    for report in document["pods"]:
        for cause in report["causes"]:
            assert cause["code"]
            assert cause["message"]
            assert cause["next_step"]
        assert report["causes"], "whoever waits is told why"


def test_sentences_fit_a_terminal_and_names_stay_whole(capsys: pytest.CaptureFixture[str], dump: str) -> None:
    main(["why", "pod/b", "--from", dump])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "kubectl delete pod b -n default" in " ".join(out.split())
    lines = out.splitlines()
    assert any(line.startswith("prepare-failed: claim default/b cannot be prepared on node-1:") for line in lines)
    assert any(line.startswith("  -> read the log of the driver's plugin on node-1") for line in lines)


def test_lists_that_could_not_be_read_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(encode_dump(replace(busy(), forbidden_lists={"events": "events is forbidden"})))
    main(["why", "pod/b", "--from", str(file)])
    assert "events could not be read, so what they say is missing here: events is forbidden" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "code"), [("deploy/web", 1), ("job/night-29400000", 3)])
def test_a_certain_no_is_worse_than_no_answer(dump: str, words: str, code: int) -> None:
    assert main(["why", words, "--from", dump, "--deadline", "0.000000001"]) == code


def test_shells_complete_the_kind_and_no_name() -> None:
    subject, context = command.params[0], click.Context(command)
    assert {item.value for item in subject.shell_complete(context, "de")} >= {"deploy", "deployment"}
    context.params["subject"] = ("pod",)
    assert subject.shell_complete(context, "de") == []
