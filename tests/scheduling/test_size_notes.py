"""A request for a little more than a size has takes the next larger one, which a note says."""

import msgspec
import pytest

from kerf_dra.api.core.v1 import Container, ContainerClaim, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import (
    CapacityRequirements,
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import Attribute, Capacity, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.scheduling.size_notes import PublishedSizes, is_near, suggest_amounts

DRIVER = "gpu.example.com"
SIZES = {
    "1g.10gb": "9984Mi",
    "1g.20gb": "20096Mi",
    "2g.20gb": "20096Mi",
    "3g.40gb": "40448Mi",
    "7g.80gb": "81152Mi",
    "": "81559Mi",
}


def device(name: str, profile: str, memory: str, *, model: str = "h100", shared: bool = False) -> Device:
    return Device(
        name=name,
        attributes={"model": Attribute.of(model), "profile": Attribute.of(profile)},
        capacity={"memory": Capacity(value=Quantity(memory))},
        allow_multiple_allocations=shared or None,
    )


def published(*devices: Device, driver: str = DRIVER) -> ResourceSlice:
    spec = ResourceSliceSpec(
        driver=driver, pool=ResourcePool(name="n", generation=1, resource_slice_count=1), devices=devices
    )
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)


CARD = published(*(device(f"d{index}", profile, memory) for index, (profile, memory) in enumerate(SIZES.items())))
TWO_CARDS = published(
    *CARD.spec.devices, *(msgspec.structs.replace(each, name=f"other-{each.name}") for each in CARD.spec.devices)
)
AT_LEAST = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("{}")) >= 0'


def of_class(*expressions: str) -> dict[str, DeviceClass]:
    selectors = tuple(DeviceSelector(cel=CelSelector(expression=each)) for each in expressions)
    return {"gpu": DeviceClass(metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(selectors=selectors))}


def claim(*expressions: str, given: str = "", least: str = "", share: str | None = None) -> ResourceClaim:
    request = ExactDeviceRequest(
        device_class_name="gpu",
        selectors=tuple(DeviceSelector(cel=CelSelector(expression=each)) for each in expressions),
        capacity=CapacityRequirements(requests={"memory": Quantity(least)}) if least else None,
    )
    return holding(DeviceRequest(name="g", exactly=request), "g", given, share)


def holding(request: DeviceRequest, result: str, given: str, share: str | None = None) -> ResourceClaim:
    results = (DeviceRequestAllocationResult(request=result, driver=DRIVER, pool="n", device=given, share_id=share),)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results)) if given else None
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
        status=ResourceClaimStatus(allocation=allocation),
    )


def notes(claim: ResourceClaim, *slices: ResourceSlice, classes: dict[str, DeviceClass] | None = None) -> list[str]:
    return [*PublishedSizes(InternedSlices.of(slices or (TWO_CARDS,))).find_notes(claim, classes or of_class())]


TWENTY = "request g: 20Gi is 0.4 GiB more than a 1g.20gb of h100 has: it takes a 3g.40gb. 19Gi or 20G take the 1g.20gb"


def test_a_request_for_a_little_more_than_a_partition_has_takes_the_next_larger_one() -> None:
    assert notes(claim(AT_LEAST.format("20Gi"), given="d3")) == [TWENTY]
    assert notes(claim(AT_LEAST.format("20Gi"))) == [TWENTY.replace("takes", "needs")]


def test_what_no_device_has_is_said_too() -> None:
    assert notes(claim(AT_LEAST.format("80Gi"))) == [
        (
            "request g: 80Gi is 0.8 GiB more than a 7g.80gb of h100 has: no device has as much. 79Gi or 80G take the "
            "7g.80gb"
        )
    ]


FORMS = {
    "a method": 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("20Gi"))',
    "the other way round": "quantity('20Gi').compareTo(device.capacity['gpu.example.com'].memory) <= 0",
    "beside a guard": '"memory" in device.capacity["gpu.example.com"] && ' + AT_LEAST.format("20Gi"),
    "one of several": 'device.attributes["gpu.example.com"].model == "h100" && ' + AT_LEAST.format("20Gi"),
}


@pytest.mark.parametrize("expression", FORMS.values(), ids=FORMS.keys())
def test_an_amount_counts_in_every_form_and_place(expression: str) -> None:
    assert len(notes(claim(expression, given="d3"))) == 1
    assert len(notes(claim(given="d3"), classes=of_class(expression))) == 1, "a class may name it"


def test_an_amount_of_capacity_requests_counts() -> None:
    near, whole = notes(claim(least="20Gi", given="d3"))
    assert near == TWENTY
    assert whole.startswith("request g: capacity.requests is a minimum, and the claim holds all of its device: ")


def test_a_share_is_what_was_asked_for() -> None:
    shared = published(device("d0", "1g.20gb", "20096Mi", shared=True))
    assert notes(claim(least="5Gi", given="d0", share="s1"), shared) == []


QUIET = {
    "the size fits": (AT_LEAST.format("19Gi"), "d1"),
    "a number far above": (AT_LEAST.format("24Gi"), "d3"),
    "no amount": ('device.attributes["gpu.example.com"].profile == "3g.40gb"', "d3"),
    "an upper bound": (AT_LEAST.format("20Gi").replace(">=", "<="), "d1"),
    "another reason, too": (
        f'{AT_LEAST.format("20Gi")} && device.attributes["gpu.example.com"].profile == "3g.40gb"',
        "d3",
    ),
    "an amount that is none": (AT_LEAST.format("20GB"), ""),
    "an expression that fails": (AT_LEAST.format("20Gi").replace("memory", "memori"), ""),
}


@pytest.mark.parametrize(("expression", "given"), QUIET.values(), ids=QUIET.keys())
def test_what_is_meant_has_no_note(expression: str, given: str) -> None:
    assert notes(claim(expression, given=given)) == []


def test_a_size_of_another_card_that_has_hardly_more_wastes_nothing() -> None:
    other = published(device("a0", "1g.24gb", "21Gi", model="l40"))
    assert notes(claim(AT_LEAST.format("20Gi"), given="a0"), CARD, other) == []
    assert notes(claim(AT_LEAST.format("20Gi")), CARD, other) == []


def test_a_larger_size_of_another_model_is_named_with_it() -> None:
    other = published(device("a0", "3g.48gb", "47Gi", model="l48"))
    [note] = notes(claim(AT_LEAST.format("20Gi"), given="a0"), CARD, other)
    assert "it takes a 3g.48gb of l48. " in note


def test_of_alternatives_that_with_devices_counts() -> None:
    alternatives = tuple(
        DeviceSubRequest(
            name=name,
            device_class_name="gpu",
            selectors=(DeviceSelector(cel=CelSelector(expression=AT_LEAST.format(amount))),),
        )
        for name, amount in (("large", "40Gi"), ("small", "20Gi"))
    )
    request = DeviceRequest(name="g", first_available=alternatives)
    [note] = notes(holding(request, "g/small", "d3"))
    assert note == TWENTY.replace("request g:", "request g/small:")
    assert [each.split(":")[0] for each in notes(holding(request, "g/large", ""))] == [
        "request g/large",
        "request g/small",
    ]


@pytest.mark.parametrize(
    ("requested", "amount", "suggested"),
    [
        ("10Gi", "9984Mi", ("9Gi", "10G")),
        ("22G", "20096Mi", ("19Gi", "21G")),
        ("20480Mi", "20096Mi", ("19Gi", "20G")),
        ("18Gi", "16Gi", ("16Gi", "17G")),
    ],
)
def test_the_suggested_amounts_fit(requested: str, amount: str, suggested: tuple[str, str]) -> None:
    assert suggest_amounts(Quantity(requested), Quantity(amount)) == suggested
    assert all(Quantity(each) <= Quantity(amount) for each in suggested)


def test_only_amounts_of_bytes_are_near() -> None:
    assert is_near(Quantity("20Gi"), Quantity("20096Mi"))
    assert not is_near(Quantity("17"), Quantity("16")), "multiprocessors"
    assert not is_near(Quantity("20Gi"), Quantity("20Gi"))


def mig(name: str, profile: str) -> Device:
    found = device(name, profile, "20096Mi")
    capability = {"cudaComputeCapability": Attribute(version="9.0.0")}
    return msgspec.structs.replace(found, attributes={**found.attributes, **capability})


def two_devices(*names: str) -> ResourceClaim:
    requests = tuple(DeviceRequest(name=f"r{index}") for index, _ in enumerate(names))
    results = tuple(
        DeviceRequestAllocationResult(request=f"r{index}", driver=DRIVER, pool="n", device=name)
        for index, name in enumerate(names)
    )
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
        status=ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=results))),
    )


def with_uses(*uses: ContainerClaim) -> Pod:
    main = Container(name="main", resources=ResourceRequirements(claims=uses))
    return Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=(main, Container(name="other"))))


@pytest.mark.parametrize(
    ("given", "uses", "count"),
    [
        (("m0", "m1"), (ContainerClaim(name="a"),), 2),
        (("m0", "m1"), (ContainerClaim(name="a", request="r0"),), 0),
        (("m0", "m1"), (ContainerClaim(name="a", request="r0"), ContainerClaim(name="a", request="r1")), 2),
        (("m0", "whole"), (ContainerClaim(name="a"),), 0),
        (("d0", "d1"), (ContainerClaim(name="a"),), 0),
        (("m0", "gone"), (ContainerClaim(name="a"),), 0),
    ],
    ids=["two", "one of them", "by two entries", "beside a whole card", "no CUDA", "one is not published any more"],
)
def test_a_container_with_several_mig_devices_is_noted(
    given: tuple[str, ...], uses: tuple[ContainerClaim, ...], count: int
) -> None:
    """Two partitions ran in one container, and its CUDA program saw half of what was asked for."""
    slice_ = published(*CARD.spec.devices, mig("m0", "a"), mig("m1", "b"), mig("whole", ""))
    sizes = PublishedSizes(InternedSlices.of([slice_]))
    found = [*sizes.find_container_notes(with_uses(*uses), {"a": two_devices(*given)})]
    assert [note.partition(", ")[0] for note in found] == [f"container main has {count} MIG devices"] * (count > 1)
