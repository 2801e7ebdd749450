"""Which devices claims get: the smallest that suffice, so that large ones stay possible; all of a pod's or none."""

import time
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.classic_parameters import (
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    GpuMinimum,
)
from kerf_dra.api.kerf.v1alpha1 import GpuSharing
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.controller.classic.node_model import InventoryError, build_node_model
from kerf_dra.driver.controller.classic.placement import (
    DeviceRequirements,
    NodeCardState,
    RequestedDevice,
    place_devices,
)
from kerf_dra.driver.controller.classic.requirements import merge_parameters
from kerf_dra.driver.controller.classic.scheduling_contexts import plan_context
from kerf_dra.driver.controller.classic.usage import ClaimUsage, UsageIndex, build_node_state
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.partitions.geometry import Card, Placement
from tests.controller.classic.cluster_builder import ClusterBuilder, context, pod
from tests.controller.classic.hardware import DRIVER, fpga, gpu, inventory

SMALL = DeviceRequirements(kind="gpu", profile="1g.10gb")
HALF = DeviceRequirements(kind="gpu", profile="3g.40gb")
WHOLE = DeviceRequirements(kind="gpu", partition=False, whole=True)
FIVE_GI = DeviceRequirements(kind="gpu", memory_bytes=5 * 2**30)
FORTY_OR_WHOLE = DeviceRequirements(kind="gpu", memory_bytes=70 * 2**30, whole=True)
TOO_LARGE = DeviceRequirements(kind="gpu", memory_bytes=81 * 2**30, whole=True)
AES = DeviceRequirements(kind="fpga", function="aes-gcm")
MONITOR = DeviceRequirements(kind="gpu", partition=False, whole=True, monitor=True)


def state(*cards: Card, taken: tuple[str, ...] = ()) -> NodeCardState:
    return build_node_state(build_node_model(inventory("n1", *cards).spec), [ClaimUsage("n1", taken)])


def given_to(found: NodeCardState, *required: DeviceRequirements) -> list[str] | None:
    placed = place_devices(
        found, [RequestedDevice("claim", "", number, requirements) for number, requirements in enumerate(required)]
    )
    return None if placed is None else [one.device for one in placed]


@pytest.mark.parametrize(
    ("required", "taken", "devices"),
    [
        ((SMALL,), (), ["gpu-0-1g-10gb-at-6"]),  # the place whose loss is least (KEEP)
        ((SMALL,), ("gpu-0-1g-10gb-at-6",), ["gpu-0-1g-10gb-at-4"]),
        ((FIVE_GI,), (), ["gpu-0-1g-10gb-at-6"]),  # the smallest profile that has it
        ((HALF, HALF), (), ["gpu-0-3g-40gb-at-4", "gpu-0-3g-40gb-at-0"]),
        ((SMALL, WHOLE), (), None),  # whole and partition exclude one another
        ((HALF, HALF, SMALL), (), None),
        ((WHOLE,), ("gpu-0-1g-10gb-at-0",), None),
        ((FORTY_OR_WHOLE,), (), ["gpu-0-7g-80gb-at-0"]),
        ((TOO_LARGE,), (), None),  # a class that allows whole cards gave one of 80 GB to whoever asked for 800
        ((MONITOR,), ("gpu-0",), ["gpu-0"]),  # looks on, takes nothing
    ],
)
def test_one_card(required: tuple[DeviceRequirements, ...], taken: tuple[str, ...], devices: list[str] | None) -> None:
    assert given_to(state(gpu("n1", 0), taken=taken), *required) == devices


def test_large_wants_choose_first_so_that_all_fit() -> None:
    assert given_to(state(gpu("n1", 0)), SMALL, SMALL, SMALL, HALF) is not None


def test_claims_of_pods_that_come_at_once_fill_one_card_before_the_next() -> None:
    """The controller allocates one after the other, each knowing what those before it have."""
    cards, taken = [gpu("n1", number) for number in range(8)], list[str]()
    for _ in range(8):
        taken += given_to(state(*cards, taken=tuple(taken)), SMALL) or ()
    assert [device[:5] for device in taken] == ["gpu-0"] * 7 + ["gpu-1"]


@pytest.mark.parametrize(
    ("required", "cards"),
    [
        ((SMALL,) * 2, {"gpu-0"}),
        ((SMALL,) * 7, {"gpu-0"}),
        ((SMALL,) * 8, {"gpu-0", "gpu-1"}),
        ((HALF, SMALL, SMALL), {"gpu-0"}),
        ((HALF,) * 4, {"gpu-0", "gpu-1"}),
    ],
)
def test_devices_that_one_pod_wants_share_cards(required: tuple[DeviceRequirements, ...], cards: set[str]) -> None:
    found = given_to(state(*(gpu("n1", number) for number in range(8))), *required)
    assert found is not None
    assert {device[:5] for device in found} == cards


def occupied_slices(names: Collection[str]) -> dict[str, set[int]]:
    """The memory slices of each card that partitions occupy, read from the partitions' names alone."""
    sizes = {"1g-10gb": 1, "1g-20gb": 2, "2g-20gb": 2, "3g-40gb": 4, "4g-40gb": 4, "7g-80gb": 8}
    occupied: dict[str, set[int]] = {"gpu-0": set(), "gpu-1": set()}
    for name in names:
        card, profile, start = name[:5], name[6:13], int(name[17:])
        units = set(range(start, start + sizes[profile]))
        assert not units & occupied[card], f"{name} overlaps another partition"
        occupied[card] |= units
    return occupied


@given(
    st.lists(
        st.tuples(st.sampled_from(["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"]), st.integers(0, 12)),
        min_size=1,
        max_size=25,
    )
)
def test_freed_partitions_make_large_ones_possible_again(load: list[tuple[str, int]]) -> None:
    # after any load, a half or a whole card can be had exactly where its memory slices are free
    model = build_node_model(inventory("n1", gpu("n1", 0), gpu("n1", 1)).spec)
    usage = UsageIndex(lambda node: None)
    held: dict[str, str] = {}

    def free(requirements: DeviceRequirements, count: int = 1) -> list[str] | None:
        return given_to(
            build_node_state(model, [one for each in usage.on("n1").values() for one in each]), *[requirements] * count
        )

    for number, (profile, leaving) in enumerate(load):
        devices = free(DeviceRequirements(kind="gpu", profile=profile))
        assert devices is not None or held, "nothing is taken, yet a partition cannot be had"
        if devices is not None:
            uid = f"claim-{number}"
            [held[uid]] = devices
            usage.put(uid, (ClaimUsage("n1", tuple(devices)),))
        if leaving < len(held):
            uid = list(held)[leaving]
            del held[uid]
            usage.put(uid, ())
        occupied = occupied_slices(held.values())
        halves = [units for units in occupied.values() for start in (0, 4) if not units & set(range(start, start + 4))]
        assert (free(HALF) is not None) == bool(halves)
        assert (free(WHOLE) is not None) == any(not units for units in occupied.values())
    for uid in held:
        usage.put(uid, ())
    assert free(WHOLE, 2) == ["gpu-0", "gpu-1"]
    assert free(DeviceRequirements(kind="gpu", profile="7g.80gb"), 2) == [
        "gpu-0-7g-80gb-at-0",
        "gpu-1-7g-80gb-at-0",
    ]


@pytest.mark.parametrize(
    ("small", "count", "large"),
    [
        ("1g.10gb", 3, ["gpu-0-4g-40gb-at-0", "gpu-1"]),
        ("1g.20gb", 2, ["gpu-0-4g-40gb-at-0", "gpu-1"]),
        ("2g.20gb", 1, ["gpu-0-4g-40gb-at-0", "gpu-1"]),
        ("3g.40gb", 1, ["gpu-0-4g-40gb-at-0", "gpu-1"]),
        ("1g.10gb", 7, [None, "gpu-1"]),
        ("2g.20gb", 3, [None, "gpu-1"]),
    ],
)
def test_small_partitions_are_packed_so_that_the_largest_stay_possible(
    small: str, count: int, large: list[str | None]
) -> None:
    # 4g.40gb has one placement, the first half of a card: small ones stay out of it as long as they can
    taken: list[str] = []
    for _ in range(count):
        devices = given_to(
            state(gpu("n1", 0), gpu("n1", 1), taken=tuple(taken)),
            DeviceRequirements(kind="gpu", profile=small),
        )
        assert devices is not None
        taken += devices
    four = given_to(state(gpu("n1", 0), taken=tuple(taken)), DeviceRequirements(kind="gpu", profile="4g.40gb"))
    whole = given_to(state(gpu("n1", 0), gpu("n1", 1), taken=tuple(taken)), WHOLE)
    assert [four and four[0], whole and whole[0]] == large


def test_a_function_goes_where_it_is_loaded_already() -> None:
    #
    placement = shell("quad").functions[0].placements[-1]
    cold = given_to(state(fpga("n1", 0, "quad")), AES)
    warm = given_to(state(fpga("n1", 0, "quad", {placement: "aes-gcm"})), AES)
    assert warm == [f"fpga-0-aes-gcm-at-{placement.start}"] != cold


def test_a_device_that_the_node_does_not_know_takes_its_whole_card() -> None:
    # inventory and claim contradict each other: nobody else gets the card until that is cleared up
    found = state(gpu("n1", 0), gpu("n1", 1), taken=("gpu-0-9g-99gb-at-3",))
    assert found.contradictions == ("a claim has gpu-0-9g-99gb-at-3, which the node lacks",)
    assert given_to(found, WHOLE) == ["gpu-1"]


@pytest.mark.parametrize(
    ("effect", "device"),
    [("NoSchedule", "gpu-0-1g-10gb-at-4"), ("NoExecute", "gpu-0-1g-10gb-at-4"), ("None", "gpu-0-1g-10gb-at-6")],
)
def test_a_device_that_its_node_warns_of_is_not_given_away(effect: str, device: str) -> None:
    taint = DeviceTaint(key="gpu.kerf.dev/unhealthy", value="degraded", effect=effect)
    told = inventory("n1", gpu("n1", 0), taints={"gpu-0-1g-10gb-at-6": (taint,)})
    assert given_to(build_node_state(build_node_model(told.spec), []), SMALL) == [device]


def test_an_allocation_that_cannot_be_read_takes_the_whole_node() -> None:
    found = build_node_state(build_node_model(inventory("n1", gpu("n1", 0)).spec), [ClaimUsage("n1", None)])
    assert given_to(found, SMALL) is None


def test_cards_of_two_models_on_one_node_are_kept_apart() -> None:
    cards = (gpu("n1", 0, "a30-24gb"), gpu("n1", 1))
    assert given_to(state(*cards), DeviceRequirements(kind="gpu", profile="1g.6gb")) == ["gpu-0-1g-6gb-at-0"]
    assert given_to(state(*cards), SMALL) == ["gpu-1-1g-10gb-at-6"]


def test_an_inventory_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(InventoryError, match="gpu-0 occurs twice"):
        build_node_model(inventory("n1", gpu("n1", 0), gpu("n2", 0)).spec)


@given(st.lists(st.sampled_from([SMALL, HALF, FIVE_GI, DeviceRequirements(kind="gpu", compute_slices=2)]), max_size=5))
def test_what_is_given_never_overlaps(required: list[DeviceRequirements]) -> None:
    #
    found = place_devices(
        state(gpu("n1", 0), gpu("n1", 1)),
        [RequestedDevice("claim", "", n, requirements) for n, requirements in enumerate(required)],
    )
    assert found is not None or len(required) > 2, "two cards have room for any two of these"
    parts = [one.spec.of(one.card.card.uuid) for one in found or ()]
    assert not any(one.overlaps(other) for number, one in enumerate(parts) for other in parts[:number])
    assert found is None or len(parts) == len(required)


def test_what_a_node_tells_is_what_it_has() -> None:
    """The plugin's side and the controller's are each other's inverse."""
    cards = (gpu("n1", 0), gpu("n1", 1, "a30-24gb"), fpga("n1", 0, "quad", {Placement(0, 1): "aes-gcm"}))
    assert tuple(held.card for held in build_node_model(inventory("n1", *cards).spec).cards) == cards


OFFER = GpuClassParametersSpec(profile="1g.10gb", sharing=GpuSharing(), max_pods=4)


def test_a_claim_takes_what_the_class_sets() -> None:
    found = merge_parameters("", OFFER, None, driver=DRIVER)
    assert (found.device, found.max_pods, found.count) == (SMALL, 4, 1)
    assert [entry.source for entry in found.config] == ["FromClass"]


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (GpuClaimParametersSpec(profile="2g.20gb"), "spec.profile: is set by the class"),
        (GpuClaimParametersSpec(minimum=GpuMinimum(memory=Quantity("5Gi"))), "spec.minimum: is set by the class"),
        (GpuClaimParametersSpec(cut="Whole"), "spec.cut: the class does not allow whole cards"),
        (GpuClaimParametersSpec(sharing=GpuSharing()), "spec.sharing: is set by the class"),
        (FpgaClaimParametersSpec(), "kind: does not fit a class of GPUs"),
    ],
)
def test_a_claim_may_not_set_what_the_class_has_set(wish: GpuClaimParametersSpec, field: str) -> None:
    # honored or refused, never changed silently
    with pytest.raises(InvalidDocumentError) as caught:
        merge_parameters("", OFFER, wish, driver=DRIVER)
    assert field in str(caught.value)


def test_what_the_class_lists_a_claim_may_set_otherwise() -> None:
    #
    offer = GpuClassParametersSpec(profile="1g.10gb", claims_may_override=("size", "sharing"))
    wish = GpuClaimParametersSpec(cut="Whole", count=2, sharing=GpuSharing())
    found = merge_parameters("", offer, wish, driver=DRIVER)
    assert (found.device, found.count) == (WHOLE, 2)
    assert [entry.source for entry in found.config] == ["FromClaim"]


def test_a_function_has_to_be_named_by_somebody() -> None:
    assert merge_parameters("", FpgaClassParametersSpec(function="aes-gcm"), None, driver=DRIVER).device == AES
    with pytest.raises(InvalidDocumentError, match=r"spec.function: is required"):
        merge_parameters("", FpgaClassParametersSpec(), None, driver=DRIVER)


def test_two_hundred_nodes_of_eight_cards_are_looked_at_in_milliseconds() -> None:
    """Measured: about 1 ms of this thread's processor time; the best of ten ignores the machine's other work."""
    builder = ClusterBuilder()
    names = tuple(f"n{number:03}" for number in range(128))
    for name in names:
        builder.node(name, *(gpu(name, index) for index in range(8)))
    builder.resource_class("gpu", {})
    builder.claim()
    asking = context(potential=names)

    def once() -> float:
        began = time.thread_time()
        plan_context(asking, pod(), builder.view)
        return time.thread_time() - began

    assert min(once() for _ in range(10)) < 0.05
