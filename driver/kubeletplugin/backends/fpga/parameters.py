"""What a claim asks of an FPGA device, by its configuration, and whether its namespace may have that."""

from typing import Final

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.fpga_objects import FpgaImageSpec
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.api.model.device_attributes import CAPACITY_COMPUTE_UNIT_PERCENT
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, UnsuitableClaimError

_LOADS: Final = 3
_LEAST_S: Final = 30
"""A load may take three times what the image's maker states, at least 30 s: makers measure on idle machines, and one
phase of a DFL reconfiguration alone may take 8 s (Linux ``drivers/fpga/dfl-fme-mgr.c``)."""


def find_fpga_config(device: AllocatedDevice, config: DeviceConfigBase | None) -> FpgaConfig:
    """Return the configuration of an FPGA device. Raises UnsuitableClaimError for that of another family."""
    if config is not None and not isinstance(config, FpgaConfig):
        raise UnsuitableClaimError(f"{device.share} is an FPGA, but the claim gives it a {type(config).__name__}")
    return config or FpgaConfig(api_version="kerf.dev/v1alpha1")


def find_function(device: AllocatedDevice, config: FpgaConfig) -> str:
    """Return the function to load: the device's own, else the one that the config names; empty: none.

    Raises UnsuitableClaimError when the two contradict one another.
    """
    own, asked = device.partition.function, config.function
    if own and asked and own != asked:
        raise UnsuitableClaimError(f"{device.share} stands for {own}, but the claim's FpgaConfig asks for {asked}")
    return own or asked or ""


def find_compute_unit_percent(device: AllocatedDevice) -> int | None:
    """Return the share's part of a function's compute units, in hundredths of one; None: all of them."""
    amount = device.consumed(CAPACITY_COMPUTE_UNIT_PERCENT) if device.partition.shared else None
    return None if amount is None else int(amount)


def find_load_limit(config: FpgaConfig, load_s: float) -> float:
    """Return how many seconds a load may take of which the image's maker says ``load_s``."""
    return config.timeout_seconds or max(_LEAST_S, _LOADS * load_s)


def check_namespace(spec: FpgaImageSpec | None, device: AllocatedDevice) -> None:
    """Check that the claim's namespace may use the function that ``spec`` describes; None: every one may.

    Raises InvalidDocumentError: the hardware is not at fault.
    """
    namespace = device.claim.namespace
    if spec is not None and spec.namespaces and namespace not in spec.namespaces:
        message = f"namespace {namespace} may not use {spec.function}: its FpgaImage names other namespaces"
        raise InvalidDocumentError(f"claim {namespace}/{device.claim.name}", [Problem("", message)])
