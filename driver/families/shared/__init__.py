"""The family ``shared``: devices that nodes find by discovery, and that several nodes may reach.

``family`` says what its devices are, ``objects`` puts the cluster's DiscoveryConfigurations and DiscoveredDevices
together, as the controller publishes them and as plugins prepare them.
"""

from kerf_dra.driver.families.shared.family import SHARED

__all__ = ["SHARED"]
