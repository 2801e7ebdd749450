"""Machines with DFL cards that are folders: ``machine`` makes them, ``driver.c`` behaves as the kernel does."""

from tests.fakes.dfl.machine import NEEDS_COMPILER, CardLayout, DflMachine, FakeSystemCalls, build_gbs, build_library

__all__ = ["NEEDS_COMPILER", "CardLayout", "DflMachine", "FakeSystemCalls", "build_gbs", "build_library"]
