"""Stand-ins of a node's FPGA card for the backends other than the simulated one, all with the functions ``aes`` and
``fft``."""

import errno
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kerf_dra.driver.kubeletplugin.backends.slots import messages
from tests.fakes.dfl import CardLayout as DflCard
from tests.fakes.dfl import DflMachine, build_library
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, FFT_ID
from tests.fakes.dfx import DaemonStandIn, DfxMachine
from tests.fakes.xrt import CardLayout as XrtCard
from tests.fakes.xrt import XrtMachine
from tests.fakes.xrt import machine as xrt

DFL: Final = "dfl"
SLOTS: Final = "slots"
XRT: Final = "xrt"

_SLOTS: Final = 2
_NO_FUNCTION: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""What a DFL port says after a load that has failed, once it is out of reset: it is blanked for its next claim."""


class FpgaMachine(ABC):
    """One card, in the folder ``root``."""

    launcher: Sequence[str] = ()
    """What the plugin is started by."""
    daemon: Sequence[str] = ()
    """The command of the vendor's daemon; empty: there is none."""

    def __init__(self, root: Path) -> None:
        self._faults = root / "faults"

    @property
    def had_all_faults(self) -> bool:
        """Whether each load that was to fail has failed."""
        return not self._faults.exists() or not self._faults.read_text()

    @property
    @abstractmethod
    def configuration(self) -> Mapping[str, Any]:
        """The backend's configuration."""

    @property
    @abstractmethod
    def functions(self) -> Sequence[str]:
        """The functions that are loaded now."""

    @abstractmethod
    def delay_load(self, ms: int) -> None:
        """Let the next load take this time."""

    @abstractmethod
    def break_load(self) -> None:
        """Let the next load fail for good."""

    @abstractmethod
    def disturb_load(self) -> None:
        """Let the next load fail in a way that the next one after it need not, of DFL cards one into another slot."""

    def bind_driver(self) -> None:  # noqa: B027  (only cards of the kernel's DFL driver need it)
        """Bind the card's driver again, after which each slot can be used."""


class _Dfl(FpgaMachine):
    """A card of the kernel's driver, which answers the plugin's own system calls."""

    _NAMES: Final = MappingProxyType({AES_ID: "aes", FFT_ID: "fft"})

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._machine = DflMachine.create(root, (DflCard(pci_address="0000:3b:00.0", ports=_SLOTS),))
        self._machine.describe(_SLOTS)
        self.launcher = ("env", f"LD_PRELOAD={build_library()}")

    @property
    def configuration(self) -> Mapping[str, Any]:
        return _configure(self._machine)

    @property
    def functions(self) -> Sequence[str]:
        found = [self._machine.read_afu_id(port) for port in range(_SLOTS) if not self._machine.is_in_reset(port)]
        return [self._NAMES.get(one, one) for one in found if one not in (BLANK_ID, _NO_FUNCTION)]

    def delay_load(self, ms: int) -> None:
        self._machine.add_fault("pr", "delay", str(ms))

    def break_load(self) -> None:
        self._machine.add_fault("pr", "wrong-id", "4" * 32)

    def disturb_load(self) -> None:
        self._machine.add_fault("pr", "errno", f"{errno.EIO} reconfig CRC error")

    def bind_driver(self) -> None:
        self._machine.bind_again(0)


class _Slots(FpgaMachine):
    """A board that the daemon dfx-mgrd loads."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._machine = DfxMachine.create(root, _SLOTS)
        self._machine.describe(_SLOTS)
        self._daemon = DaemonStandIn(root, str(root / "s"))
        self.daemon = (sys.executable, "-m", "tests.fakes.dfx.daemon", str(root), self._daemon.path)

    @property
    def configuration(self) -> Mapping[str, Any]:
        return {
            "socket": self._daemon.path,
            "firmwareFolder": str(self._machine.firmware),
            "descriptionFolder": str(self._machine.descriptions),
            "overlayFolder": str(self._machine.overlays),
            "systemRoot": str(self._machine.folder),
        }

    @property
    def functions(self) -> Sequence[str]:
        loaded = self._daemon.read_state()["slots"].values()
        return [package.partition("-")[0] for package, _ in loaded]

    def delay_load(self, ms: int) -> None:
        self._machine.add_fault("load", "delay", str(ms))

    def break_load(self) -> None:
        self._machine.add_fault("load", "text", str(messages.NO_PACKAGE))

    def disturb_load(self) -> None:
        self._machine.add_fault("load", "fail", "write error")


class _Xrt(FpgaMachine):
    """An Alveo card with a libxrt of its own."""

    _NAMES: Final = MappingProxyType({xrt.AES_ID: "aes", xrt.FFT_ID: "fft"})

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._machine = XrtMachine.create(root, (XrtCard(pci_address="0000:3b:00.1", render=128),))
        self._machine.describe()

    @property
    def configuration(self) -> Mapping[str, Any]:
        return {**_configure(self._machine), "xrtFolder": str(self._machine.xrt)}

    @property
    def functions(self) -> Sequence[str]:
        loaded = self._machine.read_loaded(0)
        return [] if loaded == xrt.BLANK_ID else [self._NAMES.get(loaded, loaded)]

    def delay_load(self, ms: int) -> None:
        self._machine.add_fault("load", "delay", str(ms))

    def break_load(self) -> None:
        self._machine.add_fault("load", "wrong-id", "44444444-4444-4444-8444-444444444444")

    def disturb_load(self) -> None:
        """The library ends the process that has loaded it."""
        self._machine.add_fault("load", "abort")


MakeMachine: TypeAlias = Callable[[Path], FpgaMachine]

MACHINES: Final[Mapping[str, MakeMachine]] = MappingProxyType({DFL: _Dfl, SLOTS: _Slots, XRT: _Xrt})
"""By the name of the backend; each is made by the folder that it is to be in, which is not there yet."""


def _configure(machine: DflMachine | XrtMachine) -> Mapping[str, Any]:
    return {
        "descriptionFolder": str(machine.descriptions),
        "imageFolder": str(machine.images),
        "cacheFolder": str(machine.folder / "cache"),
        "systemRoot": str(machine.folder),
    }
