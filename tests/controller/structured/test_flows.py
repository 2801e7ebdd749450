"""Reconciliation of classes, pass by pass, against an API server in memory with lagging caches."""

from datetime import timedelta
from typing import Any

import pytest
import yaml

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.kube.http.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    UnreachableError,
)
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.published_slices import gpus, slices

from .cluster import START, Cluster, Write, expression, verdicts

SMALL = {"device": "gpu", "minimum": {"memory": "18Gi"}}
LARGE = {"device": "gpu", "minimum": {"memory": "70Gi"}}


def mps(limit: str | int) -> dict[str, Any]:
    return {"strategy": "Mps", "mps": {"pinnedDeviceMemoryLimit": limit}}


GPU_CONFIG = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}


async def test_a_new_class_gets_a_device_class_and_a_status() -> None:
    cluster = Cluster()
    cluster.publish(*slices("n1", gpus("h100-80gb-sxm", 2)))
    cluster.put_class("small", SMALL)
    assert await cluster.settle("small") == [
        Write("create", "DeviceClass", "small"),
        Write("status", "ResourceClass", "small"),
    ]
    device_class, status = cluster.device_class("small"), cluster.status("small")
    assert device_class is not None
    assert device_class.metadata.labels == {"app.kubernetes.io/managed-by": "kerf"}
    [owner] = device_class.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name) == ("kerf.dev/v1alpha1", "ResourceClass", "small")
    assert owner.uid == cluster.resource_class("small").metadata.uid
    assert verdicts(cluster, "small") == {
        "Accepted": "True Valid",
        "Ready": "True Compiled",
        "Matching": "True DevicesMatch",
    }
    assert (status.size, status.device_class_name, status.observed_generation) == ("memory >= 18Gi", "small", 1)
    # Of an H100's placements 1g.20gb has four, 2g.20gb three, 3g.40gb two, 4g.40gb and 7g.80gb one.
    assert status.matching_devices is not None
    assert (status.matching_devices.total, status.matching_devices.cards, status.matching_devices.nodes) == (22, 2, 1)
    assert [event[:3] for event in cluster.events] == [("small", "Normal", "Compiled")]


async def test_nothing_is_written_while_nothing_changes() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    cluster.seconds += 3600
    assert await cluster.settle("small", passes=5) == []
    cluster.reconciler = cluster.new_reconciler()
    assert await cluster.settle("small") == []


async def test_a_cache_that_lags_behind_causes_no_second_write() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    cluster.lagging = True
    for _ in range(5):
        await cluster.reconciler.reconcile("small")
    assert [write.verb for write in cluster.writes] == ["create", "status"]


async def test_a_changed_class_changes_its_device_class() -> None:
    cluster = Cluster()
    config = {"kind": "GpuConfig", "apiVersion": "kerf.dev/v1alpha1"}
    cluster.put_class("small", SMALL | {"config": config, "extendedResourceName": "example.com/small"})
    await cluster.settle("small")
    cluster.put_class("small", LARGE)
    writes = await cluster.settle("small")
    assert [write.verb for write in writes] == ["patch", "status"]
    assert 'quantity("70Gi")' in expression(cluster, "small")
    assert cluster.objects["DeviceClass", "small"]["spec"].keys() == {"selectors"}
    assert cluster.status("small").observed_generation == 2


@pytest.mark.parametrize(
    "drift",
    [
        {"spec": {}},
        {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
        {"metadata": {"name": "small", "labels": {}}},
    ],
    ids=["emptied", "selects everything", "orphaned"],
)
async def test_drift_is_repaired_and_what_others_added_stays(drift: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    intended = cluster.objects["DeviceClass", "small"]
    drifted: dict[str, Any] = {**intended, **drift}
    # Without its owner it could not be told from somebody else's.
    drifted["metadata"] = {
        **intended["metadata"],
        **drift.get("metadata", {}),
        "annotations": {"team": "a"},
        "ownerReferences": intended["metadata"]["ownerReferences"],
    }
    cluster.put_device_class("small", **drifted)
    writes = await cluster.settle("small")
    assert [write.verb for write in writes] == ["patch"]
    repaired = cluster.objects["DeviceClass", "small"]
    assert repaired["spec"] == intended["spec"]
    assert repaired["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "kerf"}
    assert repaired["metadata"]["annotations"] == {"team": "a"}


async def test_the_label_of_graded_placement_follows_the_class_and_that_of_another_client_stays() -> None:
    cluster = Cluster()
    managed = {"app.kubernetes.io/managed-by": "kerf"}
    for placement, own in (
        ("Packed", {"kerf.dev/placement": "Packed"}),
        ("Spread", {}),
        ("Packed", {"kerf.dev/placement": "Packed"}),
    ):
        cluster.put_class("small", {"device": "gpu", "profile": "1g.10gb", "placement": placement})
        cluster.put_class("other", {"device": "gpu", "profile": "2g.20gb"})
        await cluster.settle("small")
        await cluster.settle("other")
        labels = cluster.objects["DeviceClass", "small"]["metadata"]["labels"]
        assert {name: value for name, value in labels.items() if value is not None} == {**managed, **own}
        assert cluster.objects["DeviceClass", "other"]["metadata"]["labels"] == managed


async def test_a_deleted_device_class_is_made_anew() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    cluster.delete("DeviceClass", "small")
    assert [write.verb for write in await cluster.settle("small")] == ["create"]


async def test_a_device_class_on_its_way_out_is_waited_for() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    held = cluster.objects["DeviceClass", "small"]
    leaving = held["metadata"] | {"deletionTimestamp": "2026-11-20T08:30:00Z", "finalizers": ["example.com/wait"]}
    cluster.put_device_class("small", metadata=leaving)
    assert [write.verb for write in await cluster.settle("small")] == ["status"]
    assert verdicts(cluster, "small")["Ready"] == "False Deleting"
    cluster.delete("DeviceClass", "small")
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "True Compiled"


async def test_a_foreign_device_class_is_left_alone() -> None:
    cluster = Cluster()
    cluster.put_device_class("small", spec={"selectors": [{"cel": {"expression": "true"}}]})
    foreign = cluster.objects["DeviceClass", "small"]
    cluster.put_class("small", SMALL)
    assert [write.verb for write in await cluster.settle("small")] == ["status"]
    assert cluster.objects["DeviceClass", "small"] == foreign
    assert verdicts(cluster, "small")["Ready"] == "False NameTaken"
    assert cluster.status("small").device_class_name is None
    cluster.delete("DeviceClass", "small")
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "True Compiled"


async def test_a_foreign_device_class_that_the_cache_does_not_show_is_left_alone_too() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    cluster.lagging = True
    cluster.put_device_class("small", spec={"selectors": [{"cel": {"expression": "true"}}]})
    foreign = cluster.objects["DeviceClass", "small"]
    with pytest.raises(TransientError):
        await cluster.reconciler.reconcile("small")
    assert cluster.objects["DeviceClass", "small"] == foreign
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "False NameTaken"


@pytest.mark.parametrize(
    ("spec", "verdict", "message"),
    [
        (
            {"device": "gpu", "profle": "1g.10gb"},
            "False InvalidSpec",
            'spec.profle: unknown field; did you mean "profile"?',
        ),
        ({}, "False InvalidSpec", "spec.device: is required"),
        (
            {"device": "gpu", "profile": "1g.11gb", "models": ["h100-80gb-sxm"]},
            "False UnknownProfile",
            'spec.profile: "1g.11gb" is not a profile of model h100-80gb-sxm; did you mean "1g.10gb"',
        ),
        (
            {"device": "gpu", "models": ["h100-80gb-sxn"]},
            "False UnknownModel",
            "spec.models[0]: there is no GPU model 'h100-80gb-sxn': did you mean h100-80gb-sxm",
        ),
        (
            {"device": "gpu", "models": ["A30"], "minimum": {"memory": "40Gi"}},
            "False MinimumTooLarge",
            "spec.minimum.memory: 40Gi is more than model a30-24gb has; the largest is 23.4375Gi (4g.24gb of",
        ),
        (
            {
                "device": "gpu",
                "models": ["h100-80gb-sxm", "rtx-pro-6000"],
                "minimum": {"memory": "90Gi", "computeSlices": 7},
            },
            "False MinimumTooLarge",
            "spec.minimum: no partition of the chosen models has all of this together",
        ),
        (
            {"device": "gpu", "models": ["A30"], "minimum": {"memory": 18}},
            "False MinimumTooSmall",
            "spec.minimum.memory: 18 counts bytes, and is less than 1Mi: write a unit, such as 18Gi; the smallest is",
        ),
        (
            {"device": "gpu", "profile": "1g.6gb", "sharing": mps("24Gi")},
            "False LimitOutOfRange",
            "spec.sharing.mps.pinnedDeviceMemoryLimit: 24Gi is more than any known model has; the largest is 5.8125Gi",
        ),
        (
            {"device": "gpu", "cut": "Whole", "config": {**GPU_CONFIG, "sharing": mps(2)}},
            "False LimitOutOfRange",
            "spec.config.sharing.mps.pinnedDeviceMemoryLimit: 2 counts bytes, and is less than 1Mi: write a unit",
        ),
        (
            {"device": "gpu", "nodes": {"names": [f"node-{number:060}" for number in range(200)]}},
            "False SelectorTooLong",
            "spec.nodes: takes 13",
        ),
    ],
)
async def test_a_wrong_class_is_told_what_is_wrong(spec: dict[str, Any], verdict: str, message: str) -> None:
    cluster = Cluster()
    cluster.put_class("wrong", spec)
    assert [write.verb for write in await cluster.settle("wrong")] == ["status"]
    assert verdicts(cluster, "wrong") == {
        "Accepted": verdict,
        "Ready": "False NotAccepted",
        "Matching": "Unknown NotCounted",
    }
    assert cluster.condition("wrong", "Accepted").message.startswith(message)
    assert [event[:3] for event in cluster.events] == [("wrong", "Warning", verdict.removeprefix("False "))]
    cluster.put_class("wrong", SMALL)
    await cluster.settle("wrong")
    assert verdicts(cluster, "wrong")["Ready"] == "True Compiled"


async def test_a_class_with_many_faults_is_told_the_first_of_them_and_how_many_more_there_are() -> None:
    cluster = Cluster()
    cluster.put_class("wrong", {"device": "gpu", **{f"unknown{number}": 1 for number in range(40)}})
    await cluster.settle("wrong")
    message = cluster.condition("wrong", "Accepted").message
    assert (message.count("unknown field"), message.rpartition("; ")[2]) == (16, "and 24 more")


async def test_a_class_that_becomes_wrong_keeps_its_device_class() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    before = cluster.objects["DeviceClass", "small"]
    cluster.put_class("small", {"device": "tpu"})
    await cluster.settle("small")
    assert cluster.objects["DeviceClass", "small"] == before
    assert "stays as it was compiled before" in cluster.condition("small", "Ready").message


async def test_a_class_made_anew_takes_over_what_was_compiled_from_the_old_one() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    cluster.delete("ResourceClass", "small")
    await cluster.settle("small")
    cluster.put_class("small", LARGE)
    await cluster.settle("small")
    cluster.collect_garbage()
    device_class = cluster.device_class("small")
    assert device_class is not None
    assert [owner.uid for owner in device_class.metadata.owner_references] == [
        cluster.resource_class("small").metadata.uid
    ]
    assert 'quantity("70Gi")' in expression(cluster, "small")


async def test_a_deleted_class_takes_its_device_class_along() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    cluster.delete("ResourceClass", "small")
    assert await cluster.settle("small") == []
    cluster.collect_garbage()
    assert cluster.device_class("small") is None
    assert await cluster.settle("small") == []


async def test_a_class_on_its_way_out_is_left_alone() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    cluster.objects["ResourceClass", "small"]["metadata"]["deletionTimestamp"] = "2026-11-20T08:30:00Z"
    assert await cluster.settle("small") == []


@pytest.mark.parametrize(
    "failure",
    [
        ConflictError("PATCH", 409, "Conflict", "modified"),
        ServerError("PATCH", 500, "InternalError", "down"),
        UnreachableError("PATCH", "refused"),
    ],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize("verb", ["create", "patch", "status"])
async def test_what_may_work_later_is_tried_again(verb: str, failure: Exception) -> None:
    cluster = Cluster()
    if verb == "patch":
        cluster.put_class("small", LARGE)
        await cluster.settle("small")
    cluster.put_class("small", SMALL)
    cluster.fail = lambda write: failure if write.verb == verb else None
    with pytest.raises(TransientError):
        await cluster.settle("small")
    cluster.fail = lambda _write: None
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "True Compiled"
    assert 'quantity("18Gi")' in expression(cluster, "small")


async def test_a_device_class_that_changes_under_our_hands_is_read_again() -> None:
    cluster = Cluster()
    cluster.put_class("small", LARGE)
    await cluster.settle("small")
    cluster.put_class("small", SMALL)

    def annotate(write: Write) -> None:
        cluster.before_write = lambda _write: None
        held = cluster.objects["DeviceClass", "small"]
        cluster.put_device_class("small", metadata=held["metadata"] | {"annotations": {"team": "a"}})

    cluster.before_write = annotate
    with pytest.raises(ConflictError):
        await cluster.settle("small")
    await cluster.settle("small")
    assert 'quantity("18Gi")' in expression(cluster, "small")
    assert cluster.objects["DeviceClass", "small"]["metadata"]["annotations"] == {"team": "a"}


@pytest.mark.parametrize(
    "failure",
    [
        ForbiddenError("POST", 403, "Forbidden", 'cannot create resource "deviceclasses"'),
        InvalidError("POST", 422, "Invalid", "spec.selectors: too expensive"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_what_the_server_refuses_is_told(failure: Exception) -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    cluster.fail = lambda write: failure if write.verb == "create" else None
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "False WriteRefused"
    assert str(failure) in cluster.condition("small", "Ready").message
    cluster.fail = lambda _write: None
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "True Compiled"


async def test_a_field_that_the_server_drops_is_told_and_not_asked_for_again() -> None:
    cluster = Cluster(dropped_fields=frozenset({"extendedResourceName"}))
    cluster.put_class("small", SMALL | {"extendedResourceName": "example.com/small"})
    writes = await cluster.settle("small", passes=6)
    assert [write.verb for write in writes] == ["create", "status"]
    assert verdicts(cluster, "small")["Ready"] == "False FieldsDropped"
    assert "spec.extendedResourceName" in cluster.condition("small", "Ready").message
    cluster.reconciler = cluster.new_reconciler()  # which has to ask once to know
    assert [write.verb for write in await cluster.settle("small", passes=6)] == ["patch"]
    cluster.dropped_fields = frozenset()  # an administrator switches the feature on
    cluster.seconds += 3600
    assert [write.verb for write in await cluster.settle("small")] == ["patch", "status"]
    assert verdicts(cluster, "small")["Ready"] == "True Compiled"


async def test_a_class_that_goes_while_its_status_is_written_is_no_error() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    missing = NotFoundError("PATCH", 404, "NotFound", "not found")
    failed: list[str] = []

    def fail(write: Write) -> Exception | None:
        failed.append(write.verb)
        return missing if write.verb == "status" else None

    cluster.fail = fail
    await cluster.reconciler.reconcile("small")
    assert "status" in failed


async def test_a_status_is_never_said_of_another_class_of_the_name() -> None:
    cluster = Cluster()
    cluster.put_class("small", {"device": "tpu"})

    def replace_class(write: Write) -> None:
        cluster.before_write = lambda _write: None
        cluster.delete("ResourceClass", "small")
        cluster.put_class("small", SMALL)

    cluster.before_write = replace_class
    with pytest.raises(ConflictError):
        await cluster.reconciler.reconcile("small")
    assert cluster.status("small").conditions == ()


async def test_a_class_of_a_family_that_is_not_installed_is_told_so_once_and_keeps_what_it_compiled_to() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    before = cluster.device_class("small")
    cluster.events.clear()
    cluster.put_class("small", {"device": "npu", "minimum": {"cores": 2}})
    assert [write.verb for write in await cluster.settle("small")] == ["status"]
    assert verdicts(cluster, "small") == {
        "Accepted": "False FamilyNotInstalled",
        "Ready": "False FamilyNotInstalled",
        "Matching": "Unknown NotCounted",
    }
    message = 'spec.device: family "npu" is not installed; installed: fpga, gpu, gpu-intel, shared'
    assert cluster.condition("small", "Accepted").message == message
    assert [event for event in cluster.events if event[2] == "FamilyNotInstalled"] == [
        ("small", "Warning", "FamilyNotInstalled", message)
    ]
    assert before is not None
    assert cluster.device_class("small") == before


async def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    cluster.seconds += 60
    cluster.publish(*slices("n1", gpus("a30")))
    await cluster.settle("small")
    cluster.seconds += 60
    cluster.put_class("small", {"device": "gpu", "minimum": {"memory": "20Gi"}})
    await cluster.settle("small")
    times = {one.type: one.last_transition_time for one in cluster.status("small").conditions}
    assert times == {
        "Accepted": "2026-11-20T08:30:00Z",
        "Ready": "2026-11-20T08:30:00Z",
        "Matching": (START + timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    assert {one.observed_generation for one in cluster.status("small").conditions} == {2}


async def test_classes_are_counted_by_readiness() -> None:
    cluster = Cluster()
    for name, spec in (("one", SMALL), ("two", LARGE), ("wrong", {"device": "tpu"})):
        cluster.put_class(name, spec)
        await cluster.settle(name)
    ready = [REGISTRY.get_sample_value("kerf_controller_classes", {"ready": value}) for value in ("true", "false")]
    assert ready == [2, 1]
    cluster.delete("ResourceClass", "two")
    await cluster.settle("two")
    assert REGISTRY.get_sample_value("kerf_controller_classes", {"ready": "true"}) == 1


async def test_what_others_say_of_a_class_stays_and_is_no_reason_to_write() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    cluster.put_condition("small", "example.com/Approved")
    assert await cluster.settle("small") == []
    cluster.publish(*slices("n1", gpus("a30")))
    await cluster.settle("small")
    assert verdicts(cluster, "small")["example.com/Approved"] == "True Because"


async def test_tolerations_are_handed_to_the_claims() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL | {"tolerations": [{"key": "kerf.dev/ill", "operator": "Exists"}]})
    await cluster.settle("small")
    message = cluster.condition("small", "TolerationsInClaims").message
    assert yaml.safe_load(message.partition("\n")[2]) == {
        "exactly": {"deviceClassName": "small", "tolerations": [{"key": "kerf.dev/ill", "operator": "Exists"}]}
    }
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    assert "TolerationsInClaims" not in verdicts(cluster, "small")


async def test_a_class_of_monitor_devices_says_what_their_claims_need() -> None:
    cluster = Cluster()
    cluster.put_class("monitor", {"device": "gpu", "cut": "Monitor"})
    await cluster.settle("monitor")
    message = cluster.condition("monitor", "TolerationsInClaims").message
    assert yaml.safe_load(message.partition("\n")[2]) == {
        "exactly": {
            "deviceClassName": "monitor",
            "adminAccess": True,
            "tolerations": [{"key": "gpu.kerf.dev/monitor", "operator": "Exists"}],
        }
    }


async def test_a_class_by_node_labels_follows_the_labels() -> None:
    cluster = Cluster()
    cluster.put_node("n1", {"rack": "r1"})
    cluster.put_node("n2", {"rack": "r2"})
    cluster.put_class("racked", {"device": "gpu", "nodes": {"matchLabels": {"rack": "r1"}}})
    await cluster.settle("racked")
    assert 'device.attributes["gpu.kerf.dev"].node in ["n1"]' in expression(cluster, "racked")
    cluster.put_node("n2", {"rack": "r1"})
    assert [write.verb for write in await cluster.settle("racked")] == ["patch"]
    assert 'node in ["n1", "n2"]' in expression(cluster, "racked")
