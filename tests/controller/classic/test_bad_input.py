"""Bad input, through the whole controller on an embedded API server of 1.30: the events, and the effects.

Bad input of one is nobody else's: in the end there is always a claim that gets what it asks for. None of it reaches a
kubelet (R-8): nothing is allocated before it makes sense.
"""

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.resource.v1alpha2 import KINDS
from tests.controller.classic.cluster import PARAMETERS, ClassicCluster, eventually
from tests.controller.classic.cluster_builder import FINALIZER
from tests.controller.classic.hardware import DRIVER, gpu


async def test_claims_of_a_foreign_drivers_class_are_not_touched_nor_talked_about(cluster: ClassicCluster) -> None:
    await cluster.class_("theirs", driver="other.example")
    await cluster.claim("foreign", "theirs")
    await cluster.claim("ours")
    await cluster.has("ours")
    foreign = await cluster.read("foreign")
    assert (foreign.metadata.finalizers, foreign.status.allocation) == ((), None)
    assert await cluster.told("ResourceClaim", "foreign") == []


async def test_a_missing_class_is_told_of_at_the_context_and_waited_for(cluster: ClassicCluster) -> None:
    await cluster.claim("early", "later", allocationMode="WaitForFirstConsumer")
    await cluster.negotiate("early")
    await cluster.says("PodSchedulingContext", "pod", "pod claim gpu: class later does not exist")
    await cluster.parameters("later", {})
    await cluster.class_("later")
    await cluster.has("early")


REFERENCES: dict[str, tuple[JsonObject, str]] = {
    "another kind": (
        {"apiGroup": "kerf.dev", "kind": "ConfigMap", "name": "p"},
        "parametersRef: ConfigMap p: the kind is not one of GpuClassParameters, FpgaClassParameters, ",
    ),
    "another group": (
        {"apiGroup": "other.example", "kind": "GpuClaimParameters", "name": "p"},
        'parametersRef: GpuClaimParameters p: apiGroup is "other.example", not kerf.dev',
    ),
    "nothing": (
        {"apiGroup": "kerf.dev", "kind": "GpuClaimParameters", "name": "p"},
        "parametersRef: GpuClaimParameters p does not exist",
    ),
    "a class's kind": (
        {"apiGroup": "kerf.dev", "kind": "GpuClassParameters", "name": "gpu"},
        "claim parameters: these are parameters for classes",
    ),
    "the other hardware's kind": (
        {"apiGroup": "kerf.dev", "kind": "FpgaClaimParameters", "name": "fft"},
        "kind: does not fit a class of GPUs",
    ),
}


@pytest.mark.parametrize("case", REFERENCES)
async def test_parameters_of_the_wrong_kind_are_told_of_at_the_claim_when_it_names(
    cluster: ClassicCluster, case: str
) -> None:
    reference, message = REFERENCES[case]
    await cluster.parameters("fft", {"function": "fft"}, "FpgaClaimParameters")
    await cluster.claim("wrong", parametersRef=reference)
    await cluster.says("ResourceClaim", "wrong", message)
    await cluster.claim("right")
    await cluster.has("right")
    assert (await cluster.read("wrong")).metadata.finalizers == ()


async def test_a_class_with_parameters_of_the_wrong_kind_is_told_of_at_class_and_claim(cluster: ClassicCluster) -> None:
    await cluster.parameters("p", {"profile": "1g.10gb"}, "GpuClaimParameters")
    await cluster.class_("odd", kind="Secret")
    await cluster.claim("wrong", "odd")
    message = "class parameters of odd: parametersRef: Secret odd: the kind is not one of"
    await cluster.says("ResourceClass", "odd", message)
    await cluster.says("ResourceClaim", "wrong", message)


async def test_unknown_fields_are_refused_where_they_are_written(cluster: ClassicCluster) -> None:
    with pytest.raises(KerfError, match=r"\.spec\.profil: field not declared in schema"):
        await cluster.parameters("p", {"profil": "1g.10gb"}, "GpuClaimParameters")


async def test_a_size_that_no_hardware_has_is_told_of_and_a_corrected_one_is_given(cluster: ClassicCluster) -> None:
    await cluster.parameters("open", {})
    await cluster.class_("open")
    await cluster.parameters("p", {"minimum": {"memory": "5000Gi"}}, "GpuClaimParameters")
    reference = {"apiGroup": "kerf.dev", "kind": "GpuClaimParameters", "name": "p"}
    await cluster.claim("large", "open", parametersRef=reference)
    await cluster.says("ResourceClaim", "large", "spec.minimum.memory: 5000Gi is more than any known model has")
    await cluster.parameters("p", {"minimum": {"memory": "18Gi"}}, "GpuClaimParameters")
    assert await cluster.has("large") == ["gpu-0-1g-20gb-at-6"]


async def test_a_class_that_is_deleted_or_becomes_anothers_changes_nothing_that_was_given(
    cluster: ClassicCluster,
) -> None:
    #
    await cluster.claim("kept")
    await cluster.claim("ended")
    kept, _ = await cluster.has("kept"), await cluster.has("ended")
    await cluster.admin.delete(PARAMETERS["GpuClassParameters"], "gpu")
    await cluster.admin.delete(KINDS.classes, "gpu")
    await cluster.claim("late")
    await cluster.edit("ended", {"status": {"deallocationRequested": True}}, "status")
    await cluster.released("ended")
    await cluster.class_(driver="other.example")
    await cluster.edit("late", {"metadata": {"labels": {"look": "again"}}})
    assert await cluster.has("kept") == kept
    assert (await cluster.read("late")).status.allocation is None
    await cluster.parameters("gpu", {"profile": "1g.10gb"})
    await cluster.class_()
    assert await cluster.has("late")


async def test_a_claim_whose_finalizer_somebody_took_off_is_deallocated_all_the_same(cluster: ClassicCluster) -> None:
    await cluster.claim("edited")
    device = await cluster.has("edited")
    await cluster.edit("edited", {"metadata": {"finalizers": ["else.example/mine"]}})
    await cluster.edit("edited", {"status": {"deallocationRequested": True}}, "status")

    async def is_allocated_again() -> bool:
        edited = await cluster.read("edited")
        is_marked = edited.metadata.finalizers == ("else.example/mine", FINALIZER)
        return is_marked and edited.status.allocation is not None and not edited.status.deallocation_requested

    await eventually(is_allocated_again)  # it is Immediate
    assert await cluster.has("edited") == device


async def test_an_allocation_that_another_driver_wrote_is_left_to_it_and_told_of(cluster: ClassicCluster) -> None:
    await cluster.class_("theirs", driver="other.example")
    await cluster.claim("foreign", "theirs")
    await cluster.edit("foreign", {"metadata": {"finalizers": [FINALIZER]}})
    handles = [{"driverName": "other.example", "data": "theirs"}]
    status = {"driverName": "other.example", "allocation": {"resourceHandles": handles}}
    await cluster.edit("foreign", {"status": status}, "status")
    await cluster.edit("foreign", {"status": {"deallocationRequested": True}}, "status")
    await cluster.says("ResourceClaim", "foreign", "allocated by other.example, which has to deallocate it")
    assert (await cluster.read("foreign")).status.allocation is not None


ONLY_N1: JsonObject = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
}
UNREADABLE: dict[str, tuple[list[JsonObject], str]] = {
    "is no JSON": ([{"driverName": DRIVER, "data": "gpu 0, please"}], "it is not JSON of a AllocatedDevices"),
    "is of another version": (
        [{"driverName": DRIVER, "data": '{"apiVersion":"kerf.dev/v9","kind":"AllocatedDevices","results":[]}'}],
        "it is a AllocatedDevices of kerf.dev/v9",
    ),
    "is missing": ([], "there is none"),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_nothing_of_a_node_is_given_away_while_a_handle_there(cluster: ClassicCluster, case: str) -> None:
    handles, reason = UNREADABLE[case]
    await cluster.claim("strange", allocationMode="WaitForFirstConsumer")
    status = {"driverName": DRIVER, "allocation": {"resourceHandles": handles, "availableOnNodes": ONLY_N1}}
    await cluster.edit("strange", {"status": status}, "status")
    await cluster.says("ResourceClaim", "strange", f"its resource handle cannot be read: {reason}")
    await cluster.says("ResourceClaim", "strange", "no other claim gets devices of n1")
    await cluster.claim("next", allocationMode="WaitForFirstConsumer")
    await cluster.negotiate("next")
    await cluster.says("Pod", "pod", "too few devices are free; the devices of a claim cannot be read (1)")
    await cluster.admin.delete(KINDS.claims, "strange", "default")
    assert await cluster.has("next")


async def test_where_inventory_and_claims_contradict_each_other_the_card_is_nobody_elses(
    cluster: ClassicCluster,
) -> None:
    await cluster.claim("first")
    (device,) = await cluster.has("first")
    await cluster.tell(gpu("n1", 0, "a30-24gb"))
    message = f"it has {device}, which no NodeInventory of n1 has: no other claim gets that card"
    await cluster.says("ResourceClaim", "first", message)
    await cluster.parameters("open", {})
    await cluster.class_("open")
    await cluster.claim("second", "open", allocationMode="WaitForFirstConsumer")
    await cluster.negotiate("second")
    await cluster.says("Pod", "pod", f"too few devices are free; a claim has {device}, which the node lacks (1)")
    await cluster.tell(gpu("n1", 0, "a30-24gb"), gpu("n1", 1, "a30-24gb"))
    assert (await cluster.has("second"))[0].startswith("gpu-1-1g-6gb")


async def test_an_inventory_that_contradicts_itself_makes_its_node_unsuitable(cluster: ClassicCluster) -> None:
    await cluster.tell(gpu("n1", 0), gpu("n1", 0))
    await cluster.claim("one", allocationMode="WaitForFirstConsumer")
    await cluster.negotiate("one")
    await cluster.says("Pod", "pod", "its NodeInventory of gpu.kerf.dev is wrong: GPU-n1-0 occurs twice (1)")
    await cluster.tell(gpu("n1", 0))
    assert await cluster.has("one")
