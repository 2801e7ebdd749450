"""The figures of claims are there while the hardware says them, by claim and device, and go with the claim."""

from collections.abc import Iterator, Mapping
from itertools import count

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef, ShareId
from kerf_dra.api.model.prepared import CardPart, ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample
from kerf_dra.driver.kubeletplugin.inventory.metrics.claim_metrics import ClaimMetrics
from kerf_dra.driver.kubeletplugin.inventory.metrics.usage_metrics import UsageMetrics
from kerf_dra.driver.kubeletplugin.inventory.state.usage import CardEnergy, DeviceUsage, NodeUsage, UsedDevice
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.kubeletplugin.observed_state import ObservedState
from tests.partitions.cards import gpu

NODE = "node-1"
POOL = "node-1/gpu"
NOW = 1000.0
_NUMBERS = count()
CLAIM_FIGURES = (
    "kerf_claim_memory_bytes",
    "kerf_claim_utilization_ratio",
    "kerf_claim_energy_joules_total",
    "kerf_claim_idle_seconds",
)
DEVICE_FIGURES = ("dra_device_power_watts", "dra_device_utilization_ratio")
BUSY = DeviceUsage(
    sample=DeviceSample(memory_bytes=2048, processes=2, busy=0.75), energy_mj=12500, power_w=40.5, idle_since=None
)
IDLE = DeviceUsage(sample=DeviceSample(memory_bytes=0, processes=0, busy=0.0), energy_mj=3, power_w=1.5, idle_since=900)


class Node:
    """A node whose claims use their devices as the test says."""

    def __init__(self) -> None:
        self.driver = f"usage-{next(_NUMBERS)}.example.com"
        self.records: dict[str, PreparedClaim] = {}
        self.usage: dict[UsedDevice, DeviceUsage] = {}
        self.cards: dict[str, CardEnergy] = {}
        self.state = ObservedState(self.records, driver=self.driver)
        self.state.cards = [gpu(index=0), gpu(index=1)]
        self.claims = ClaimMetrics(driver=self.driver, node=NODE, state=self.state, now=lambda: NOW)
        self.metrics = UsageMetrics(driver=self.driver, node=NODE, state=self.state, claims=self.claims)

    def add(self, uid: str, *devices: tuple[str, str | None, DeviceUsage]) -> None:
        """Add a claim with devices, each with its name, share and use."""
        held = []
        for name, share, usage in devices:
            share_id = ShareId(DeviceId(self.driver, POOL, name), share)
            part = CardPart(kind="gpu", card_uuid="GPU-0")
            handle = {"uuid": f"MIG-{name}"}
            held.append(PreparedDevice(requests=("gpu",), share=share_id, part=part, backend="x", handle=handle))
            self.usage[UsedDevice(uid, share_id)] = usage
        self.records[uid] = PreparedClaim(
            claim=ClaimRef("team", f"claim-{uid}", uid), state=ClaimState.PREPARED, boot_id="b", devices=tuple(held)
        )
        self.note()

    def note(self) -> None:
        self.state.note_usage(NodeUsage(at=NOW, devices=dict(self.usage), cards=dict(self.cards)))

    def read(self, uid: str, device: str, pod: str = "") -> list[float | None]:
        """Return the figures of a claim's device."""
        labels = {"namespace": "team", "pod": pod, "claim": f"claim-{uid}", "device": device, "uuid": f"MIG-{device}"}
        return [self.value(name, labels) for name in CLAIM_FIGURES]

    def read_device(self, device: str) -> list[float | None]:
        labels = {"pool": POOL, "device": device, "uuid": f"MIG-{device}"}
        return [self.value(name, labels) for name in DEVICE_FIGURES]

    def value(self, name: str, labels: Mapping[str, str]) -> float | None:
        return REGISTRY.get_sample_value(name, {"driver": self.driver, "node": NODE, **labels})

    def count_series(self) -> int:
        families = [*CLAIM_FIGURES, *DEVICE_FIGURES]
        found = (sample for family in REGISTRY.collect() for sample in family.samples)
        return sum(one.name in families and one.labels["driver"] == self.driver for one in found)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    with made.metrics.served():
        yield made


def test_each_device_of_a_claim_has_its_figures(node: Node) -> None:
    node.add("a", ("one", None, BUSY), ("two", None, IDLE))
    node.add("b", ("three", None, IDLE))
    node.claims.note_uses([ClaimUse(claim=ObjectRef("team", "claim-a"), pod=ObjectRef("team", "p"))])
    assert node.read("a", "one", pod="p") == [2048, 0.75, 12.5, 0]
    assert node.read("a", "two", pod="p") == [0, 0, 0.003, 100]
    assert node.read("b", "three") == [0, 0, 0.003, 100]
    assert node.read_device("one") == [40.5, 0.75]
    assert node.read_device("three") == [1.5, 0]


@pytest.mark.parametrize(
    ("usage", "figures"),
    [
        (DeviceUsage(), [None, None, None, None]),
        (DeviceUsage(sample=DeviceSample(memory_bytes=5)), [5, None, None, None]),
        (DeviceUsage(sample=DeviceSample(processes=1)), [None, None, None, 0]),
        (DeviceUsage(sample=DeviceSample(busy=0.5)), [None, 0.5, None, 0]),
        (DeviceUsage(energy_mj=0), [None, None, 0, None]),
        (DeviceUsage(idle_since=NOW - 5), [None, None, None, 5]),
        (DeviceUsage(idle_since=NOW + 5), [None, None, None, 0]),
    ],
    ids=["nothing", "memory", "processes", "time", "energy", "idle before a restart", "the clock was set back"],
)
def test_what_is_unknown_has_no_series(node: Node, usage: DeviceUsage, figures: list[float | None]) -> None:
    node.add("a", ("one", None, usage))
    assert node.read("a", "one") == figures


def test_shares_of_one_device_in_one_claim_are_one_series(node: Node) -> None:
    other = replaced(BUSY, idle_since=None)
    node.add("a", ("one", "x", BUSY), ("one", "y", other), ("two", "x", IDLE), ("two", "y", replaced(IDLE, 950)))
    assert node.read("a", "one") == [4096, 1, 25, 0]
    assert node.read("a", "two") == [0, 0, 0.006, 50]


def test_shares_of_one_device_in_several_claims_are_one_series_of_the_device(node: Node) -> None:
    node.add("a", ("one", "x", BUSY))
    node.add("b", ("one", "y", IDLE))
    assert node.read("a", "one")[0] == 2048
    assert node.read("b", "one")[0] == 0
    assert node.read_device("one") == [42, 0.75]


def replaced(usage: DeviceUsage, idle_since: float | None) -> DeviceUsage:
    return DeviceUsage(sample=usage.sample, energy_mj=usage.energy_mj, power_w=usage.power_w, idle_since=idle_since)


def test_the_series_of_a_claim_that_ended_are_gone_whatever_was_sampled_last(node: Node) -> None:
    for number in range(20):
        node.add(f"c{number}", (f"d{number}", None, BUSY))
    assert node.count_series() == 20 * 6
    for number in range(19):
        del node.records[f"c{number}"]
    node.records["c19"] = replace(node.records["c19"], state=ClaimState.RELEASING)
    assert node.count_series() == 0


def test_the_energy_of_cards_is_that_of_all_and_of_no_claim(node: Node) -> None:
    node.cards = {
        "GPU-0": CardEnergy(total_mj=5000, unattributed_mj=1500),
        "GPU-9": CardEnergy(total_mj=7, unattributed_mj=0),
    }
    node.note()
    for card, uuid, total, unattributed in (("gpu-0", "GPU-0", 5, 1.5), ("", "GPU-9", 0.007, 0)):
        labels = {"card": card, "uuid": uuid}
        assert node.value("kerf_card_energy_joules_total", labels) == total
        assert node.value("kerf_card_unattributed_energy_joules_total", labels) == unattributed


def test_nothing_is_served_after_the_end() -> None:
    node = Node()
    node.add("a", ("one", None, BUSY))
    with node.metrics.served():
        assert node.count_series() == 6
    assert node.count_series() == 0
