"""How many claims are in which phase, how long they took, and who has which device, as metrics."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest

from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimConsumerReference, ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef, ShareId
from kerf_dra.api.model.prepared import CardPart, ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.inventory.metrics.claim_metrics import ClaimMetrics, find_card_ratio
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.kubeletplugin.observed_state import ObservedState
from tests.partitions.cards import fpga, gpu

H100 = gpu("h100-80gb-sxm")
NODE = "node-1"
CREATED, ALLOCATED = "2026-11-22T10:00:00Z", "2026-11-22T10:00:30Z"
READY = datetime(2026, 11, 22, 10, 0, 32, tzinfo=UTC).timestamp()
_NUMBERS = count()


@pytest.fixture
def driver() -> str:
    """A driver of one test alone: the registry is the process's."""
    return f"claims-{next(_NUMBERS)}.example.com"


@pytest.fixture
def records() -> dict[str, PreparedClaim]:
    return {}


@pytest.fixture
def shown(driver: str, records: dict[str, PreparedClaim]) -> Iterator[ClaimMetrics]:
    state = ObservedState(records, driver=driver)
    state.cards = [H100]
    made = ClaimMetrics(driver=driver, node=NODE, state=state, now=lambda: READY)
    with made.served():
        yield made


def record(
    driver: str, uid: str, state: ClaimState = ClaimState.PREPARED, *, awaits_pod: bool = False
) -> PreparedClaim:
    device = PreparedDevice(
        requests=("gpu",),
        share=ShareId(DeviceId(driver, "node-1/gpu", "gpu-0-1g-10gb-at-0"), None),
        part=CardPart(kind="gpu", card_uuid=H100.uuid, profile="1g.10gb", start=0, size=1),
        backend="simulated",
        handle={"uuid": "MIG-1", "instance": 9},
    )
    return PreparedClaim(
        claim=ClaimRef("team", f"claim-{uid}", uid),
        state=state,
        boot_id="b",
        awaits_pod=awaits_pod,
        devices=(device,),
    )


def claim(uid: str, *pods: str, allocated: str | None = ALLOCATED) -> ResourceClaim:
    users = tuple(ResourceClaimConsumerReference(resource="pods", name=pod, uid=pod) for pod in pods)
    return ResourceClaim(
        metadata=ObjectMeta(name=f"claim-{uid}", namespace="team", uid=uid, creation_timestamp=CREATED),
        status=ResourceClaimStatus(allocation=AllocationResult(allocation_timestamp=allocated), reserved_for=users),
    )


def value(name: str, driver: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"driver": driver, **labels})


def info(driver: str, uid: str, pod: str) -> float | None:
    labels = {
        "namespace": "team",
        "claim": f"claim-{uid}",
        "claim_uid": uid,
        "device": "gpu-0-1g-10gb-at-0",
        "share": "",
        "card": "gpu-0",
        "card_uuid": H100.uuid,
        "cut": "1g.10gb",
        "uuid": "MIG-1",
        "instance_id": "9",
    }
    return value("kerf_prepared_device_info", driver, node=NODE, pod=pod, **labels)


def phases(driver: str) -> dict[str, float]:
    every = ("preparing", "awaiting-pod", "prepared", "running", "releasing")
    found = {phase: value("kerf_claims", driver, node=NODE, phase=phase) for phase in every}
    return {phase: number for phase, number in found.items() if number}


def test_claims_are_counted_by_phase(driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics) -> None:
    records["a"] = record(driver, "a", ClaimState.STARTED)
    records["b"] = record(driver, "b", awaits_pod=True)
    records["c"] = record(driver, "c")
    records["d"] = record(driver, "d")
    records["e"] = record(driver, "e", ClaimState.RELEASING)
    shown.note_uses([ClaimUse(claim=ObjectRef("team", "claim-d"), pod=ObjectRef("team", "p"))])
    assert phases(driver) == {"preparing": 1, "awaiting-pod": 1, "prepared": 1, "running": 1, "releasing": 1}


def test_a_prepared_device_names_its_claim_pod_and_uuid_and_goes_with_its_record(
    driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics
) -> None:
    records["a"] = record(driver, "a")
    shown.note_prepared(claim("a", "web-2", "web-1"), is_new=True)
    assert info(driver, "a", "web-1") == 1
    shown.note_uses([ClaimUse(claim=ObjectRef("team", "claim-a"), pod=ObjectRef("team", "web-2"))])
    assert info(driver, "a", "web-2") == 1
    del records["a"]
    assert info(driver, "a", "web-2") is None


def prepared(
    part: CardPart, *, share: str | None = None, consumed: dict[str, Quantity] | None = None, admin: bool = False
) -> PreparedDevice:
    return PreparedDevice(
        requests=("gpu",),
        share=ShareId(DeviceId("gpu.kerf.dev", "node-1/gpu", "gpu-0"), share),
        admin_access=admin,
        consumed_capacity=consumed or {},
        part=part,
        backend="simulated",
    )


HALF = CardPart(kind="gpu", card_uuid=H100.uuid, profile="3g.40gb", start=4, size=4)
EIGHTH = CardPart(kind="gpu", card_uuid=H100.uuid, profile="1g.10gb", start=0, size=1)
WHOLE = CardPart(kind="gpu", card_uuid=H100.uuid)
SHELL = fpga("quad")
SLOT = CardPart(kind="fpga", card_uuid=SHELL.uuid, start=1, size=1)


@pytest.mark.parametrize(
    ("card", "device", "ratio"),
    [
        (H100, prepared(EIGHTH), 1 / 8),
        (H100, prepared(HALF), 1 / 2),
        (H100, prepared(WHOLE), 1),
        (SHELL, prepared(SLOT), 1 / 4),
        (H100, prepared(WHOLE, share="s", consumed={"memory": Quantity("20Gi")}), 1 / 4),
        (H100, prepared(HALF, share="s", consumed={"gpu.kerf.dev/memory": Quantity("10240Mi")}), 1 / 8),
        (H100, prepared(HALF, share="s", consumed={"processes": Quantity(1)}), 1 / 2),
        (H100, prepared(WHOLE, admin=True), None),
        (H100, prepared(CardPart(kind="gpu", card_uuid=H100.uuid, profile="9g.90gb", start=0, size=8)), None),
        (None, prepared(WHOLE), None),
    ],
)
def test_the_part_of_its_card_that_a_device_has_is_its_units_by_those_of_the_card(
    card: Card | None, device: PreparedDevice, ratio: float | None
) -> None:
    found = find_card_ratio(card, device)
    assert found == (None if ratio is None else pytest.approx(ratio, rel=0.02))


def test_the_part_of_a_device_has_the_names_of_its_claim_and_pod(
    driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics
) -> None:
    records["a"], records["b"] = record(driver, "a"), record(driver, "b", ClaimState.RELEASING)
    shown.note_prepared(claim("a", "web"), is_new=True)
    labels = {"node": NODE, "namespace": "team", "device": "gpu-0-1g-10gb-at-0", "share": ""}
    name = "kerf_prepared_device_card_ratio"
    assert value(name, driver, **labels, pod="web", claim="claim-a", claim_uid="a") == 1 / 8
    assert value(name, driver, **labels, pod="", claim="claim-b", claim_uid="b") is None


def test_the_pod_of_a_claim_that_another_process_prepared_is_learned_from_the_kubelet(
    driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics
) -> None:
    records["a"] = record(driver, "a")
    assert info(driver, "a", "") == 1
    shown.note_uses([ClaimUse(claim=ObjectRef("team", "claim-a"), pod=ObjectRef("team", "p"))])
    assert info(driver, "a", "p") == 1


def test_times_of_the_phases_are_those_of_the_claim(
    driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics
) -> None:
    records["a"] = record(driver, "a")
    shown.note_prepared(claim("a", "p"), is_new=True)
    assert value("kerf_claim_phase_seconds_sum", driver, phase="queued") == 30
    assert value("kerf_claim_phase_seconds_sum", driver, phase="allocated") == 2
    labels = {"node": NODE, "namespace": "team", "pod": "p", "claim": "claim-a", "claim_uid": "a"}
    assert value("kerf_claim_prepared_timestamp_seconds", driver, **labels) == READY


@pytest.mark.parametrize(
    ("read", "is_new"),
    [(claim("a", "p"), False), (claim("a", "p", allocated=None), True), (claim("a", allocated="?"), True)],
)
def test_no_time_is_made_up(
    driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics, read: ResourceClaim, is_new: bool
) -> None:
    records["a"] = record(driver, "a")
    shown.note_prepared(read, is_new=is_new)
    assert value("kerf_claim_phase_seconds_sum", driver, phase="allocated") is None


def test_nothing_is_served_after_the_end(driver: str, records: dict[str, PreparedClaim]) -> None:
    records["a"] = record(driver, "a")
    made = ClaimMetrics(driver=driver, node=NODE, state=ObservedState(records, driver=driver), now=lambda: READY)
    with made.served():
        assert phases(driver) == {"prepared": 1}
    assert value("kerf_claims", driver, node=NODE, phase="prepared") is None


def test_a_claim_that_is_gone_is_forgotten(driver: str, records: dict[str, PreparedClaim], shown: ClaimMetrics) -> None:
    records["a"] = record(driver, "a")
    shown.note_prepared(claim("a", "p"), is_new=True)
    del records["a"]
    records["b"] = record(driver, "b")
    shown.note_prepared(claim("b", "p"), is_new=True)
    records["a"] = record(driver, "a")
    assert info(driver, "a", "p") is None
    assert info(driver, "a", "") == 1
