"""Boards with the daemon dfx-mgrd that are folders: ``machine`` makes them, ``daemon`` behaves as the daemon does."""

from tests.fakes.dfx.daemon import DaemonStandIn
from tests.fakes.dfx.machine import DfxMachine

__all__ = ["DaemonStandIn", "DfxMachine"]
