"""The family ``fpga``: FPGAs into whose slots functions are loaded (partial reconfiguration).

``shell`` has what is known of a shell, ``descriptions`` makes shells from what administrators write (FpgaShells and
FpgaImages), ``geometry`` the partitions of a shell,
``refused_images`` what nodes say of images that they cannot load, ``family`` the family itself.
"""

from kerf_dra.driver.families.fpga.family import FPGA

__all__ = ["FPGA"]
