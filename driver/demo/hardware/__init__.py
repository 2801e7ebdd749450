"""The hardware of a demo's nodes.

``manifest_hardware`` says what the user's manifests describe or need (pure). ``node_hardware`` writes what each node
has (``intel_cards``: the files of Intel's), and says what that is; ``expected_devices`` says what nodes will find by
discovery. The package never starts a program, and never talks to the cluster.
"""

from kerf_dra.driver.demo.hardware.expected_devices import list_expected_devices
from kerf_dra.driver.demo.hardware.manifest_hardware import HARDWARE_KINDS, ManifestHardware, find_manifest_hardware
from kerf_dra.driver.demo.hardware.node_hardware import DemoHardware, FoundHardware, HardwareUnusableError

__all__ = [
    "HARDWARE_KINDS",
    "DemoHardware",
    "FoundHardware",
    "HardwareUnusableError",
    "ManifestHardware",
    "find_manifest_hardware",
    "list_expected_devices",
]
