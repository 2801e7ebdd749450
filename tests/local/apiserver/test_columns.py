"""The columns that ``kubectl get`` prints."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.kinds.printers import columns
from kerf_dra.driver.local.apiserver.kinds.printers.pods import PODS
from kerf_dra.driver.local.apiserver.kinds.types import Column
from kerf_dra.driver.local.apiserver.times import format_age, format_duration

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (176_400, "2d1h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (252_288_000, "8y"),
    ],
)
def test_durations_have_one_or_two_units(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_time_that_is_none_is_unknown() -> None:
    assert format_age(None, NOW) == "<unknown>"
    assert format_age("yesterday", NOW) == "<unknown>"
    assert format_age("2026-01-01T11:59:50Z", NOW) == "10s"


def row(table: tuple[Column, ...] | list[Column], body: dict[str, Any]) -> dict[str, Any]:
    return {column.name: column.cell(body, NOW) for column in table}


def named(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "creationTimestamp": "2026-01-01T11:59:00Z"}, **fields}


@pytest.mark.parametrize(
    ("metadata", "status", "state"),
    [
        ({}, {}, "pending"),
        ({}, {"allocation": {"devices": {}}}, "allocated"),
        ({}, {"allocation": {"devices": {}}, "reservedFor": [{}]}, "allocated,reserved"),
        ({"deletionTimestamp": "t"}, {"allocation": {"devices": {}}}, "deleted,allocated"),
        ({"deletionTimestamp": "t"}, {}, "deleted"),
    ],
)
def test_a_claims_state_is_told_in_a_word(metadata: dict[str, Any], status: dict[str, Any], state: str) -> None:
    body = {"metadata": {"name": "c", **metadata}, "status": status}
    assert row(list(columns.CLAIMS), body)["State"] == state


def test_slices_show_where_they_belong() -> None:
    body = named(spec={"driver": "d.example.com", "nodeName": "n1", "pool": {"name": "n1/gpu"}})
    assert row(columns.SLICES, body) == {
        "Name": "x",
        "Node": "n1",
        "Driver": "d.example.com",
        "Pool": "n1/gpu",
        "Age": "60s",
    }


def test_taint_rules_show_their_taint() -> None:
    taint = {"key": "a/b", "effect": "NoExecute", "timeAdded": "2026-01-01T11:59:30Z"}
    shown = row(columns.TAINT_RULES, named(spec={"taint": taint}))
    assert shown == {"Name": "x", "Key": "a/b", "Value": "", "Effect": "NoExecute", "TimeAdded": "30s", "Age": "60s"}


def test_nodes_show_readiness_and_roles() -> None:
    body = named(
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "False"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    )
    body["metadata"]["labels"] = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}
    shown = row(columns.NODES, body)
    assert shown["Status"] == "NotReady,SchedulingDisabled"
    assert shown["Roles"] == "gpu,worker"
    assert shown["Version"] == "v1.37.0"
    assert shown["Internal-IP"] == "10.0.0.1"
    assert shown["External-IP"] == "<none>"
    assert row(columns.NODES, named())["Status"] == "Unknown"


def test_events_show_when_what_and_of_whom() -> None:
    body = named(
        type="Warning",
        reason="Failed",
        message="no devices \n",
        involvedObject={"kind": "Pod", "name": "p"},
        firstTimestamp="2026-01-01T11:00:00Z",
        lastTimestamp="2026-01-01T11:59:58Z",
        source={"component": "kubelet", "host": "n1"},
        count=3,
    )
    shown = row(columns.EVENTS, body)
    assert (shown["Last Seen"], shown["Object"], shown["Message"]) == ("2s", "pod/p", "no devices")
    assert (shown["Source"], shown["First Seen"], shown["Count"]) == ("kubelet, n1", "60m", "3")


def test_a_single_event_of_the_new_kind_counts_once() -> None:
    body = named(eventTime="2026-01-01T11:59:00.000000Z", reportingComponent="c", involvedObject={"kind": "Node"})
    shown = row(columns.EVENTS, body)
    assert (shown["Last Seen"], shown["Count"], shown["Source"], shown["Object"]) == ("60s", "1", "c", "node")


def container(name: str = "c", **status: Any) -> dict[str, Any]:
    return {"name": name, **status}


RUNNING = container(ready=True, state={"running": {}})
DONE: dict[str, Any] = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
CRASHED: dict[str, Any] = {"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}


@pytest.mark.parametrize(
    ("pod", "ready", "status", "restarts"),
    [
        pytest.param({"status": {"phase": "Pending"}}, "0/1", "Pending", "0", id="pending"),
        pytest.param(
            {"status": {"phase": "Running", "containerStatuses": [RUNNING]}}, "1/1", "Running", "0", id="runs"
        ),
        pytest.param(
            {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}},
            "0/1",
            "SchedulingGated",
            "0",
            id="gated",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Pending",
                    "containerStatuses": [container(state={"waiting": {"reason": "ErrImagePull"}})],
                }
            },
            "0/1",
            "ErrImagePull",
            "0",
            id="waits",
        ),
        pytest.param(
            {"status": {"phase": "Succeeded", "containerStatuses": [container(**DONE)]}},
            "0/1",
            "Completed",
            "0",
            id="done",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "containerStatuses": [container(**CRASHED)]}},
            "0/1",
            "Error",
            "0",
            id="failed",
        ),
        pytest.param({"status": {"phase": "Failed", "reason": "Evicted"}}, "0/1", "Evicted", "0", id="evicted"),
        pytest.param(
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {
                            **RUNNING,
                            "restartCount": 2,
                            "lastState": {"terminated": {"finishedAt": "2026-01-01T11:59:30Z"}},
                        }
                    ],
                }
            },
            "1/1",
            "Running",
            "2 (30s ago)",
            id="restarted",
        ),
        pytest.param(
            {"spec": {"initContainers": [{"name": "i"}]}, "status": {"initContainerStatuses": [container("i")]}},
            "0/1",
            "Init:0/1",
            "0",
            id="initializing",
        ),
        pytest.param(
            {
                "spec": {"initContainers": [{"name": "i"}]},
                "status": {"initContainerStatuses": [container("i", **CRASHED)]},
            },
            "0/1",
            "Init:Error",
            "0",
            id="init failed",
        ),
        pytest.param(
            {
                "spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
                "status": {
                    "phase": "Running",
                    "initContainerStatuses": [container("s", started=True, ready=True, state={"running": {}})],
                    "containerStatuses": [RUNNING],
                },
            },
            "2/2",
            "Running",
            "0",
            id="sidecar",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Running", "containerStatuses": [RUNNING]}},
            "1/1",
            "Terminating",
            "0",
            id="terminating",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "containerStatuses": [container(state={"terminated": {"signal": 9}})]}},
            "0/1",
            "Signal:9",
            "0",
            id="killed",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "containerStatuses": [container(state={"terminated": {"exitCode": 3}})]}},
            "0/1",
            "ExitCode:3",
            "0",
            id="exited",
        ),
        pytest.param(
            {
                "spec": {"initContainers": [{"name": "i"}, {"name": "j"}]},
                "status": {
                    "initContainerStatuses": [
                        container("i", **DONE),
                        container("j", state={"waiting": {"reason": "ErrImagePull"}}),
                    ]
                },
            },
            "0/1",
            "Init:ErrImagePull",
            "0",
            id="init waits",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Running", "reason": "NodeLost"}},
            "0/1",
            "Unknown",
            "0",
            id="lost",
        ),
        pytest.param(
            {
                "spec": {"containers": [{"name": "c"}, {"name": "d"}]},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [container(**DONE), {**RUNNING, "name": "d"}],
                },
            },
            "1/2",
            "Running",
            "0",
            id="one done, one runs",
        ),
    ],
)
def test_a_pods_state_is_told_as_kubectl_users_know_it(
    pod: dict[str, Any], ready: str, status: str, restarts: str
) -> None:
    body = {
        **pod,
        "metadata": {"name": "p", **pod.get("metadata", {})},
        "spec": {"containers": [{"name": "c"}], **pod.get("spec", {})},
    }
    shown = row(PODS, body)
    assert (shown["Ready"], shown["Status"], shown["Restarts"]) == (ready, status, restarts)


def test_a_pods_gates_and_address_are_shown_wide() -> None:
    gates = {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    status = {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "a", "status": "True"}]}
    shown = row(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [], **gates}, "status": status})
    assert (shown["Readiness Gates"], shown["IP"]) == ("1/2", "10.0.0.1")
    shown = row(PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}})
    assert (shown["Readiness Gates"], shown["IP"]) == ("<none>", "<none>")
