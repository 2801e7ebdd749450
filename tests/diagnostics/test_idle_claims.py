"""``kerf why --idle``: which claims do not use their devices, as their nodes report, and what to do about each."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.anonymization.snapshot import anonymize
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump, redact
from kerf_dra.driver.diagnostics.overview.claim_rows import find_rows, matches, sort_rows
from kerf_dra.driver.diagnostics.overview.idle_claims import IdleReport, find_idle_claims
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    owned,
    placed_pod,
    replace,
    report_devices,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

# The snapshots are of 2026-11-21T08:00:00Z.
DAY_AGO, HOUR_AGO, IN_AN_HOUR = "2026-11-20T08:00:00Z", "2026-11-21T07:00:00Z", "2026-11-21T09:00:00Z"
IN_USE: JsonObject = {"sampled": True}

Run = Callable[..., tuple[int, str, str]]


def idle(since: str) -> JsonObject:
    return {"sampled": True, "idleSince": since}


def cluster() -> ClusterState:
    """Two nodes: an idle claim on each, one idle in part, one in use, one of which nothing is known, one that waits."""
    now = gpu_cluster(nodes=2, cards=4)
    now = allocate_claims(now, claim("web", "1g-10gb"), claim("pair", "1g-10gb", "2g-20gb"), on="node-1")
    now = allocate_claims(now, claim("train", "4g-40gb"), claim("busy", "1g-10gb"), claim("old", "whole"), on="node-2")
    now = report_devices(now, "web", idle(HOUR_AGO))
    now = report_devices(now, "pair", IN_USE, idle(HOUR_AGO))
    now = report_devices(now, "train", idle(DAY_AGO))
    now = report_devices(now, "busy", IN_USE)
    pods = [placed_pod(name, name, phase="Running") for name in ("web", "pair")]
    pods += [placed_pod(name, name, on="node-2", phase="Running") for name in ("train", "busy", "old")]
    pods[0] = owned(pods[0], "ReplicaSet", "web-5d9f", **{"pod-template-hash": "5d9f"})
    return replace(now, claims=(*now.claims, claim("waits", "whole")), pods=tuple(pods))


def find(now: ClusterState, namespace: str = "") -> IdleReport:
    return find_idle_claims(ClusterIndex(now), namespace)


def test_idle_claims_come_the_longest_idle_first_with_their_pods_nodes_and_devices() -> None:
    report = find(cluster())
    assert [(each.name, each.pods, each.nodes, each.idle.seconds) for each in report.claims] == [
        ("train", ("train",), ("node-2",), 86400),
        ("pair", ("pair",), ("node-1",), 3600),
        ("web", ("web",), ("node-1",), 3600),
    ]
    assert report.claims[0].idle.devices == ("gpu.kerf.dev/node-2/gpu/gpu-0-4g-40gb-at-0",)
    assert report.claims[0].idle.since == DAY_AGO
    assert (report.not_idle, report.unknown) == (1, 1)
    assert report.message == "3 of 4 sampled claims have idle devices; of 1 more it is not known"


def test_of_a_claim_that_is_idle_in_part_only_the_idle_devices_are_named() -> None:
    [pair] = [each for each in find(cluster()).claims if each.name == "pair"]
    assert not pair.idle.is_whole
    assert [device.rpartition("/")[2] for device in pair.idle.devices] == ["gpu-0-2g-20gb-at-0"]


def test_a_claim_whose_devices_became_idle_one_after_the_other_is_idle_since_the_last() -> None:
    now = report_devices(cluster(), "pair", idle(DAY_AGO), idle(HOUR_AGO))
    [pair] = [each for each in find(now).claims if each.name == "pair"]
    assert (pair.idle.is_whole, pair.idle.since, len(pair.idle.devices)) == (True, HOUR_AGO, 2)


@pytest.mark.parametrize("data", [{}, {"idleSince": "yesterday"}, {"idleSince": 3}, {"uuid": "MIG-1"}])
def test_what_is_not_sampled_is_never_idle(data: JsonObject) -> None:
    now = report_devices(cluster(), "train", data)
    assert "train" not in {each.name for each in find(now).claims}


def test_a_clock_that_is_ahead_makes_no_negative_time() -> None:
    [train] = [
        each for each in find(report_devices(cluster(), "train", idle(IN_AN_HOUR))).claims if each.name == "train"
    ]
    assert train.idle.seconds == 0


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("web", "end deployment/web, which owns the pod"),
        ("train", "kubectl delete pod train -n default"),
    ],
)
def test_the_step_names_the_workload_that_has_to_end(name: str, end: str) -> None:
    [found] = [each for each in find(cluster()).claims if each.name == name]
    assert found.next_step == f"kubectl logs {name} -n default says what it does; if it is not needed any more, {end}"


def test_a_claim_that_no_pod_uses_is_to_be_deleted() -> None:
    now = cluster()
    unused = tuple(replace(each, status=replace(each.status, reserved_for=())) for each in now.claims)
    [train] = [each for each in find(replace(now, claims=unused, pods=())).claims if each.name == "train"]
    assert train.next_step == "no pod uses it: kubectl delete resourceclaim train -n default"


def test_only_claims_of_the_namespace_are_listed() -> None:
    now = cluster()
    elsewhere = tuple(
        replace(each, metadata=ObjectMeta(name=each.metadata.name, namespace="team", uid=each.metadata.uid))
        if each.metadata.name == "train"
        else each
        for each in now.claims
    )
    now = replace(now, claims=elsewhere)
    assert [each.name for each in find(now, "team").claims] == ["train"]
    assert "train" not in {each.name for each in find(now, "default").claims}


def test_where_no_node_reports_use_that_is_said_and_not_that_claims_are_in_use() -> None:
    now = cluster()
    for name, devices in (("web", 1), ("pair", 2), ("train", 1), ("busy", 1)):
        now = report_devices(now, name, *({} for _ in range(devices)))
    report = find(now)
    assert not report.is_known
    assert report.message == "no node reports use: whether any of the 5 claims with devices is idle is not known"
    assert "--sample-interval" in report.next_step


def test_where_all_sampled_claims_are_in_use_none_is_listed() -> None:
    now = cluster()
    for name, devices in (("web", 1), ("pair", 2), ("train", 1), ("old", 1)):
        now = report_devices(now, name, *(IN_USE for _ in range(devices)))
    report = find(now)
    assert (report.is_known, report.claims, report.not_idle, report.next_step) == (True, (), 5, "")
    assert report.message == "none of 5 sampled claims has idle devices"


def test_no_claim_with_devices_is_a_known_answer() -> None:
    report = find(replace(cluster(), claims=(claim("waits", "whole"),), pods=()))
    assert (report.is_known, report.message, report.next_step) == (True, "no claim has devices", "")


def test_a_snapshot_without_secrets_and_one_with_pseudonyms_keep_since_when_devices_are_idle() -> None:
    secret = "password"
    now = report_devices(cluster(), "train", {**idle(DAY_AGO), "uuid": secret})
    now = report_devices(now, "web", {"sampled": secret, "idleSince": secret})
    kept = redact(now)
    assert secret not in encode_dump(kept).decode()
    assert [(each.name, each.idle.seconds) for each in find(kept).claims] == [("train", 86400), ("pair", 3600)]
    pseudonymous, _ = anonymize(kept)
    assert [each.idle.seconds for each in find(pseudonymous).claims] == [86400, 3600]


def test_rows_show_idleness_as_their_state_and_are_sorted_and_found_by_it() -> None:
    rows = find_rows(ClusterIndex(cluster()))
    states = {row.subject.name: row.shown_state for row in rows}
    assert states == {
        "web": "idle 60 min",
        "pair": "part idle 60 min",
        "train": "idle 24 h",
        "busy": "allocated",
        "old": "allocated",
        "waits": "pending",
    }
    assert next(row.subject.name for row in sort_rows(rows, "idle")) == "train"
    assert {row.subject.name for row in rows if matches(row, "idle")} == {"web", "pair", "train"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def run(now: ClusterState, *arguments: str) -> tuple[int, str, str]:
        file = tmp_path / "dump.json"
        file.write_bytes(encode_dump(now))
        code = main(["why", "--from", str(file), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_command_prints_idle_claims_in_80_columns(run: Run) -> None:
    code, out, err = run(cluster(), "-A", "--idle")
    assert (code, err) == (0, "")
    assert out.splitlines()[:8] == [
        "all namespaces: 3 of 4 sampled claims have idle devices; of 1 more it is not",
        "  known",
        "",
        "claim default/train: idle for 24 h, since 2026-11-20T08:00:00Z",
        "  pod train on node-2",
        "    gpu.kerf.dev/node-2/gpu/gpu-0-4g-40gb-at-0",
        "  -> kubectl logs train -n default says what it does; if it is not needed any",
        "     more, kubectl delete pod train -n default",
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_only_the_wide_output_names_all_pods_of_a_claim(run: Run) -> None:
    now = cluster()
    users = [placed_pod(f"train-{number}", "train", on="node-2", phase="Running") for number in range(9)]
    now = replace(now, pods=(*now.pods, *users))
    assert "pod train, train-0, train-1, train-2, train-3, train-4 and 4 more on node-2" in run(now, "--idle")[1]
    assert "train-8 on node-2" in " ".join(run(now, "--idle", "-o", "wide")[1].split())


def test_the_command_prints_a_document_and_names(run: Run) -> None:
    code, out, _ = run(cluster(), "--idle", "-o", "json")
    document = json.loads(out)
    assert (code, document["unknown"], [each["name"] for each in document["claims"]]) == (
        0,
        1,
        ["train", "pair", "web"],
    )
    assert document["claims"][0]["idle"] == {
        "devices": ["gpu.kerf.dev/node-2/gpu/gpu-0-4g-40gb-at-0"],
        "is_whole": True,
        "since": DAY_AGO,
        "seconds": 86400,
    }
    assert run(cluster(), "--idle", "-o", "name")[1].split() == [
        "resourceclaim/train",
        "resourceclaim/pair",
        "resourceclaim/web",
    ]


def test_no_report_of_use_is_no_answer(run: Run) -> None:
    now = replace(cluster(), claims=tuple(each for each in cluster().claims if each.metadata.name == "old"))
    code, out, _ = run(now, "--idle", "-A")
    assert code == 3
    assert out.startswith("all namespaces: no node reports use:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pod/web", "--idle"], "--idle lists claims: leave out the kind and the name"),
        (["--idle", "-A", "-n", "default"], "-A stands for all namespaces: leave out --namespace"),
        ([], "name what to explain, such as `kerf why pod/NAME` or `kerf why pods`, or give --idle"),
        (["pod/web", "-A"], "-A is for `kerf why pods` and --idle: leave out the name and --namespace"),
    ],
)
def test_a_wrong_use_of_the_options_is_refused_with_the_right_one(run: Run, arguments: list[str], message: str) -> None:
    code, _, err = run(cluster(), *arguments)
    assert code == 2
    assert message in err
