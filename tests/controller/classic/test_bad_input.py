"""Bad input, through the whole controller on an embedded API server of 1.30: what people read, and what comes of it.

Bad input of one is nobody else's: in the end there is always a claim that gets what it asks for. None of it reaches a
kubelet (R-8): nothing is allocated before it makes sense.
"""

import pytest

from api.errors import KerfError
from api.model.base import JsonObject
from api.resource.v1alpha2 import KINDS
from tests.controller.classic.cluster import PARAMETERS, World, eventually
from tests.controller.classic.hardware import DRIVER, gpu
from tests.controller.classic.scene import FINALIZER


async def test_claims_of_a_foreign_drivers_class_are_not_touched_nor_talked_about(world: World) -> None:
    await world.class_("theirs", driver="other.example")
    await world.claim("foreign", "theirs")
    await world.claim("ours")
    await world.has("ours")
    foreign = await world.read("foreign")
    assert (foreign.metadata.finalizers, foreign.status.allocation) == ((), None)
    assert await world.told("ResourceClaim", "foreign") == []


async def test_a_missing_class_is_told_of_at_the_context_and_waited_for(world: World) -> None:
    await world.claim("early", "later", allocationMode="WaitForFirstConsumer")
    await world.negotiate("early")
    await world.says("PodSchedulingContext", "pod", "pod claim gpu: class later does not exist")
    await world.parameters("later", {})
    await world.class_("later")
    await world.has("early")


REFERENCES: dict[str, tuple[JsonObject, str]] = {
    "another kind": (
        {"apiGroup": "kerf.dev", "kind": "ConfigMap", "name": "p"},
        "parametersRef: ConfigMap p: the kind is none of GpuClassParameters, FpgaClassParameters, ",
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
        "claim parameters: they are parameters of classes",
    ),
    "the other hardware's kind": (
        {"apiGroup": "kerf.dev", "kind": "FpgaClaimParameters", "name": "fft"},
        "kind: does not fit a class of GPUs",
    ),
}


@pytest.mark.parametrize("case", REFERENCES)
async def test_parameters_of_the_wrong_kind_are_told_of_at_the_claim_when_it_names(world: World, case: str) -> None:
    reference, message = REFERENCES[case]
    await world.parameters("fft", {"function": "fft"}, "FpgaClaimParameters")
    await world.claim("wrong", parametersRef=reference)
    await world.says("ResourceClaim", "wrong", message)
    await world.claim("right")
    await world.has("right")
    assert (await world.read("wrong")).metadata.finalizers == ()


async def test_a_class_with_parameters_of_the_wrong_kind_is_told_of_at_class_and_claim(world: World) -> None:
    await world.parameters("p", {"profile": "1g.10gb"}, "GpuClaimParameters")
    await world.class_("odd", kind="Secret")
    await world.claim("wrong", "odd")
    message = "class parameters of odd: parametersRef: Secret odd: the kind is none of"
    await world.says("ResourceClass", "odd", message)
    await world.says("ResourceClaim", "wrong", message)


async def test_unknown_fields_are_refused_where_they_are_written(world: World) -> None:
    with pytest.raises(KerfError, match=r"\.spec\.profil: field not declared in schema"):
        await world.parameters("p", {"profil": "1g.10gb"}, "GpuClaimParameters")


async def test_a_size_that_no_hardware_has_is_told_of_and_a_corrected_one_is_given(world: World) -> None:
    await world.parameters("open", {})
    await world.class_("open")
    await world.parameters("p", {"minimum": {"memory": "5000Gi"}}, "GpuClaimParameters")
    reference = {"apiGroup": "kerf.dev", "kind": "GpuClaimParameters", "name": "p"}
    await world.claim("large", "open", parametersRef=reference)
    await world.says("ResourceClaim", "large", "spec.minimum.memory: 5000Gi is more than any known model can be cut to")
    await world.parameters("p", {"minimum": {"memory": "18Gi"}}, "GpuClaimParameters")
    assert await world.has("large") == ["gpu-0-1g-20gb-at-6"]


async def test_a_class_that_is_deleted_or_becomes_anothers_changes_nothing_that_was_given(world: World) -> None:
    #
    await world.claim("kept")
    await world.claim("ended")
    kept, _ = await world.has("kept"), await world.has("ended")
    await world.admin.delete(PARAMETERS["GpuClassParameters"], "gpu")
    await world.admin.delete(KINDS.classes, "gpu")
    await world.claim("late")
    await world.edit("ended", {"status": {"deallocationRequested": True}}, "status")
    await world.released("ended")
    await world.class_(driver="other.example")
    await world.edit("late", {"metadata": {"labels": {"look": "again"}}})
    assert await world.has("kept") == kept
    assert (await world.read("late")).status.allocation is None
    await world.parameters("gpu", {"profile": "1g.10gb"})
    await world.class_()
    assert await world.has("late")


async def test_a_claim_whose_finalizer_somebody_took_off_is_deallocated_all_the_same(world: World) -> None:
    await world.claim("edited")
    device = await world.has("edited")
    await world.edit("edited", {"metadata": {"finalizers": ["else.example/mine"]}})
    await world.edit("edited", {"status": {"deallocationRequested": True}}, "status")

    async def marked() -> bool:
        return FINALIZER in (await world.read("edited")).metadata.finalizers

    await eventually(marked)  # it is Immediate, so it is allocated again
    assert await world.has("edited") == device
    edited = await world.read("edited")
    assert edited.metadata.finalizers == ("else.example/mine", FINALIZER)
    assert not edited.status.deallocation_requested


async def test_an_allocation_that_another_driver_wrote_is_left_to_it_and_told_of(world: World) -> None:
    await world.class_("theirs", driver="other.example")
    await world.claim("foreign", "theirs")
    await world.edit("foreign", {"metadata": {"finalizers": [FINALIZER]}})
    handles = [{"driverName": "other.example", "data": "theirs"}]
    status = {"driverName": "other.example", "allocation": {"resourceHandles": handles}}
    await world.edit("foreign", {"status": status}, "status")
    await world.edit("foreign", {"status": {"deallocationRequested": True}}, "status")
    await world.says("ResourceClaim", "foreign", "allocated by other.example, which has to deallocate it")
    assert (await world.read("foreign")).status.allocation is not None


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
async def test_nothing_of_a_node_is_given_away_while_a_handle_there(world: World, case: str) -> None:
    handles, reason = UNREADABLE[case]
    await world.claim("strange", allocationMode="WaitForFirstConsumer")
    status = {"driverName": DRIVER, "allocation": {"resourceHandles": handles, "availableOnNodes": ONLY_N1}}
    await world.edit("strange", {"status": status}, "status")
    await world.says("ResourceClaim", "strange", f"its resource handle cannot be read: {reason}")
    await world.says("ResourceClaim", "strange", "nobody else gets anything of n1")
    await world.claim("next", allocationMode="WaitForFirstConsumer")
    await world.negotiate("next")
    await world.says("Pod", "pod", "not enough is free; a claim does not say what it has (1)")
    await world.admin.delete(KINDS.claims, "strange", "default")
    assert await world.has("next")


async def test_where_inventory_and_claims_contradict_each_other_the_card_is_nobody_elses(world: World) -> None:
    await world.claim("first")
    (device,) = await world.has("first")
    await world.tell(gpu("n1", 0, "a30-24gb"))
    message = f"it has {device}, which NodeInventory n1 does not have: nobody else gets that card"
    await world.says("ResourceClaim", "first", message)
    await world.parameters("open", {})
    await world.class_("open")
    await world.claim("second", "open", allocationMode="WaitForFirstConsumer")
    await world.negotiate("second")
    await world.says("Pod", "pod", f"not enough is free; a claim has {device}, which it does not know (1)")
    await world.tell(gpu("n1", 0, "a30-24gb"), gpu("n1", 1, "a30-24gb"))
    assert (await world.has("second"))[0].startswith("gpu-1-1g-6gb")


async def test_an_inventory_that_contradicts_itself_makes_its_node_unsuitable(world: World) -> None:
    await world.tell(gpu("n1", 0), gpu("n1", 0))
    await world.claim("one", allocationMode="WaitForFirstConsumer")
    await world.negotiate("one")
    await world.says("Pod", "pod", "its NodeInventory is wrong: GPU-n1-0 is there twice (1)")
    await world.tell(gpu("n1", 0))
    assert await world.has("one")
