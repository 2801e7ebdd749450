"""The metrics of what claims use of their devices, and of the energy of cards.

There is one series of each for a device of a claim, as long as it is prepared. A series is absent where the hardware
cannot say what it would show, and where nothing is sampled.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeAlias

from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.inventory.metrics.claim_metrics import ClaimMetrics
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.state.usage import DeviceUsage, UsedDevice
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.runtime import metrics

_MEMORY: Final = metrics.live_gauge(
    "kerf_claim_memory_bytes",
    "Memory that is in use on a claim's device.",
    ["driver", "node", "namespace", "pod", "claim", "device", "uuid"],
)
_UTILIZATION: Final = metrics.live_gauge(
    "kerf_claim_utilization_ratio",
    "Part of the time between the latest two samples in which a claim's device computed, 0 to 1. Absent where the "
    "hardware cannot say, as for MIG before Hopper.",
    ["driver", "node", "namespace", "pod", "claim", "device", "uuid"],
)
_ENERGY: Final = metrics.live_counter(
    "kerf_claim_energy_joules_total",
    "Energy of a card that was shared out to a claim's device since it was prepared.",
    ["driver", "node", "namespace", "pod", "claim", "device", "uuid"],
)
_IDLE: Final = metrics.live_gauge(
    "kerf_claim_idle_seconds",
    "Time for which a claim's device had been idle at the latest sample; 0: it is in use. Absent: that is unknown.",
    ["driver", "node", "namespace", "pod", "claim", "device", "uuid"],
)
_CARD_ENERGY: Final = metrics.live_counter(
    "kerf_card_energy_joules_total",
    "Energy of a card since it was sampled for the first time, over restarts of the plugin and resets of the card.",
    ["driver", "node", "card", "uuid"],
)
_UNATTRIBUTED: Final = metrics.live_counter(
    "kerf_card_unattributed_energy_joules_total",
    "Energy of a card that was shared out to no claim: that of parts that no claim had.",
    ["driver", "node", "card", "uuid"],
)
_POWER: Final = metrics.live_gauge(
    "dra_device_power_watts",
    "Power of a prepared device between the latest two samples: its part of the card's. The name is a proposal for all "
    "DRA drivers.",
    ["driver", "node", "pool", "device", "uuid"],
)
_DEVICE_UTILIZATION: Final = metrics.live_gauge(
    "dra_device_utilization_ratio",
    "Part of the time between the latest two samples in which a prepared device computed, 0 to 1. The name is a "
    "proposal for all DRA drivers.",
    ["driver", "node", "pool", "device", "uuid"],
)

_MJ_PER_J: Final = 1000

_Figure: TypeAlias = Callable[[DeviceUsage], float | None]
_Combine: TypeAlias = Callable[[Sequence[float]], float]
"""Makes one figure of those of the shares of one device that have the same labels."""


class UsageMetrics:
    """The metrics of what the claims of one family use on one node."""

    def __init__(self, *, driver: str, node: str, state: NodeState, claims: ClaimMetrics) -> None:
        """``claims`` knows the pods of claims."""
        self._driver = driver
        self._node = node
        self._state = state
        self._claims = claims

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve the metrics inside the context."""
        with ExitStack() as stack:
            stack.enter_context(_MEMORY.reading(lambda: self._list_by_claim(_read_memory, sum)))
            stack.enter_context(_UTILIZATION.reading(lambda: self._list_by_claim(_read_utilization, _add_ratios)))
            stack.enter_context(_ENERGY.reading(lambda: self._list_by_claim(_read_energy, sum)))
            stack.enter_context(_IDLE.reading(lambda: self._list_by_claim(self._read_idle, min)))
            stack.enter_context(_CARD_ENERGY.reading(lambda: self._list_cards(is_unattributed=False)))
            stack.enter_context(_UNATTRIBUTED.reading(lambda: self._list_cards(is_unattributed=True)))
            stack.enter_context(_POWER.reading(lambda: self._list_by_device(_read_power, sum)))
            stack.enter_context(
                _DEVICE_UTILIZATION.reading(lambda: self._list_by_device(_read_utilization, _add_ratios))
            )
            yield

    def _read_idle(self, usage: DeviceUsage) -> float | None:
        if usage.idle_since is not None:
            return max(0.0, self._state.usage.at - usage.idle_since)
        return 0.0 if usage.says_whether_idle else None

    def _list_by_claim(self, read: _Figure, combine: _Combine) -> metrics.Samples:
        figures: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        for record, device, usage in self._list_used():
            if (figure := read(usage)) is not None:
                claim, pod = record.claim, self._claims.find_pod(record.claim.uid)
                labels = (claim.namespace, pod, claim.name, device.share.id.device, _read_uuid(device))
                figures[labels].append(figure)
        return [((self._driver, self._node, *labels), combine(found)) for labels, found in figures.items()]

    def _list_by_device(self, read: _Figure, combine: _Combine) -> metrics.Samples:
        figures: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        for _, device, usage in self._list_used():
            if (figure := read(usage)) is not None:
                figures[device.share.id.pool, device.share.id.device, _read_uuid(device)].append(figure)
        return [((self._driver, self._node, *labels), combine(found)) for labels, found in figures.items()]

    def _list_used(self) -> Iterator[tuple[PreparedClaim, PreparedDevice, DeviceUsage]]:
        for uid, record in self._state.records.items():
            if record.state is ClaimState.PREPARED:
                for device in record.devices:
                    usage = self._state.usage.devices.get(UsedDevice(uid, device.share))
                    if usage is not None:
                        yield record, device, usage

    def _list_cards(self, *, is_unattributed: bool) -> metrics.Samples:
        names = {card.uuid: card_name(card) for card in self._state.cards}
        for uuid, energy in self._state.usage.cards.items():
            millijoules = energy.unattributed_mj if is_unattributed else energy.total_mj
            yield (self._driver, self._node, names.get(uuid, ""), uuid), millijoules / _MJ_PER_J


def _read_memory(usage: DeviceUsage) -> float | None:
    return usage.sample.memory_bytes


def _read_utilization(usage: DeviceUsage) -> float | None:
    return usage.sample.busy


def _read_energy(usage: DeviceUsage) -> float | None:
    return None if usage.energy_mj is None else usage.energy_mj / _MJ_PER_J


def _read_power(usage: DeviceUsage) -> float | None:
    return usage.power_w


def _add_ratios(ratios: Sequence[float]) -> float:
    """Return the part of the time that shares of one device use together."""
    return min(1.0, sum(ratios))


def _read_uuid(device: PreparedDevice) -> str:
    uuid = (device.handle or {}).get("uuid")
    return uuid if isinstance(uuid, str) else ""
