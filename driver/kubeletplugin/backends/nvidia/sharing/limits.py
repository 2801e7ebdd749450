"""What a claim may use of a device that it shares, from its share and its configuration. Pure.

A limit is kept as it was asked for, or refused: it is never lowered or rounded.
"""

from dataclasses import dataclass
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import GpuConfig
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, UnsuitableClaimError

_MIB: Final = 2**20
"""The unit in which MPS counts memory (``set_device_pinned_mem_limit``)."""
_PINNED: Final = "sharing.mps.pinnedDeviceMemoryLimit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """The limits of one claim's clients; None: the whole device."""

    share_memory_bytes: int | None = None
    """The memory of the claim's share, whatever the strategy."""
    active_thread_percentage: int | None = None
    """The percentage of the device's multiprocessors that each client of MPS may use."""
    pinned_memory_mib: int | None = None
    """The device memory that each client of MPS may have."""


def find_limits(device: AllocatedDevice, config: GpuConfig | None) -> ClientLimits:
    """Return the limits of the claim that ``device`` was allocated to.

    The limit of the share counts where the configuration has none; that none is beyond the share was checked before
    (``claims.allocated_devices``). Raises UnsuitableClaimError, with the field, for one that cannot be kept exactly.
    """
    memory, percent = device.consumed(v.CAPACITY_MEMORY), device.consumed(v.CAPACITY_COMPUTE_PERCENT)
    share_memory = None if memory is None else int(memory)
    share_percent = None if percent is None else int(percent)
    if config is None or config.sharing.strategy != "Mps":
        if share_percent:
            raise UnsuitableClaimError(
                f"{device.share}: only MPS keeps a share of {share_percent} % of the multiprocessors: set "
                "sharing.strategy: Mps in the claim's or the class's GpuConfig"
            )
        return ClientLimits(share_memory_bytes=share_memory)
    mps = config.sharing.mps
    percentage = None if mps is None else mps.active_thread_percentage
    pinned = None if mps is None else mps.pinned_device_memory_limit
    pinned_bytes = share_memory if pinned is None else _to_bytes(pinned)
    return ClientLimits(
        share_memory_bytes=share_memory,
        active_thread_percentage=percentage or share_percent or None,
        pinned_memory_mib=None if pinned_bytes is None else pinned_bytes // _MIB,
    )


def widen(one: ClientLimits, other: ClientLimits) -> ClientLimits:
    """Return the limits that the clients of both keep: those of the daemon that serves them."""
    return ClientLimits(
        active_thread_percentage=_larger(one.active_thread_percentage, other.active_thread_percentage),
        pinned_memory_mib=_larger(one.pinned_memory_mib, other.pinned_memory_mib),
    )


def _larger(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _to_bytes(limit: Quantity) -> int:
    amount = limit.nano // 10**9
    if limit.nano != amount * 10**9 or amount % _MIB or amount <= 0:
        raise UnsuitableClaimError(f"{_PINNED}: {limit} is not a multiple of 1Mi, in which MPS counts memory")
    return amount
