"""The hardware of a demo's nodes: ``node_hardware`` writes it, and says what the nodes have.

The package never starts a program, and never talks to the cluster.
"""

from kerf_dra.driver.demo.hardware.node_hardware import DemoHardware, FoundHardware, HardwareUnusableError

__all__ = ["DemoHardware", "FoundHardware", "HardwareUnusableError"]
