"""What a claim may use of a device that it shares: its configuration, or its share, kept as it is or refused."""

import pytest

from kerf_dra.api.kerf.v1alpha1 import GpuConfig, GpuSharing, Mps
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing import ClientLimits, find_limits
from kerf_dra.driver.partitions.geometry import Partition

PLAIN = GpuConfig(api_version="kerf.dev/v1alpha1")


def limits_of(config: GpuConfig | None, **consumed: str) -> ClientLimits:
    device = AllocatedDevice(
        claim=ClaimRef("default", "user", "uid"),
        share=ShareId(DeviceId("gpu.kerf.dev", "node-1/gpu", "gpu-0-shared"), "share"),
        partition=Partition(kind="gpu", card_uuid="GPU-1", shared=True),
        admin_access=False,
        consumed_capacity={name: Quantity(one) for name, one in consumed.items()},
    )
    return find_limits(device, config)


def mps(percentage: int | None = None, memory: str | None = None) -> GpuConfig:
    limits = Mps(
        active_thread_percentage=percentage,
        pinned_device_memory_limit=None if memory is None else Quantity(memory),
    )
    return GpuConfig(api_version="kerf.dev/v1alpha1", sharing=GpuSharing(strategy="Mps", mps=limits))


@pytest.mark.parametrize(
    ("config", "consumed", "percentage", "mebibytes"),
    [
        (mps(), {}, None, None),
        (mps(), {"memory": "1Gi", "computePercent": "0"}, None, 1024),
        (mps(), {"memory": "1Gi", "computePercent": "30"}, 30, 1024),
        (mps(20, "512Mi"), {"memory": "1Gi", "computePercent": "30"}, 20, 512),
        (mps(20, "512Mi"), {}, 20, 512),
        (PLAIN, {"memory": "1Gi"}, None, None),
        (None, {"memory": "1Gi"}, None, None),
    ],
)
def test_the_configuration_comes_before_the_share(
    config: GpuConfig | None, consumed: dict[str, str], percentage: int | None, mebibytes: int | None
) -> None:
    found = limits_of(config, **consumed)
    assert (found.active_thread_percentage, found.pinned_memory_mib) == (percentage, mebibytes)
    assert found.share_memory_bytes == (2**30 if consumed else None)


def test_capacities_may_have_the_drivers_domain() -> None:
    assert limits_of(mps(), **{"gpu.kerf.dev/computePercent": "7"}).active_thread_percentage == 7


@pytest.mark.parametrize("memory", ["1500k", "1", "1.5", "1048577"])
def test_a_memory_limit_that_mps_cannot_keep_exactly_is_refused(memory: str) -> None:
    with pytest.raises(
        HardwareRefusedError, match=r"^sharing\.mps\.pinnedDeviceMemoryLimit: .* is not a multiple of 1Mi"
    ):
        limits_of(mps(None, memory))


@pytest.mark.parametrize("config", [None, PLAIN])
def test_a_share_of_the_multiprocessors_that_nothing_keeps_is_refused(config: GpuConfig | None) -> None:
    with pytest.raises(HardwareRefusedError, match="only MPS keeps a share of 30 % of the multiprocessors"):
        limits_of(config, computePercent="30")
