"""The family ``fpga``: FPGAs into whose slots functions are loaded (partial reconfiguration).

``shell`` has what is known of a shell, ``catalog`` the shells that Kerf ships (``data``), ``geometry`` the partitions
of a shell, ``family`` the family itself.
"""

from driver.families.fpga.family import FPGA

__all__ = ["FPGA"]
