"""Stand-ins of Alveo cards: files as their driver shows them, image files, and the functions of libxrt in C."""

from tests.fakes.xrt.machine import NEEDS_COMPILER, CardLayout, XrtMachine, build_library
from tests.fakes.xrt.xclbin import build_xclbin

__all__ = ["NEEDS_COMPILER", "CardLayout", "XrtMachine", "build_library", "build_xclbin"]
