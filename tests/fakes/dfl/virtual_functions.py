"""What the kernel does when ports are released and virtual functions made, on a machine that is a folder."""

import errno
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import FME_PORT_ASSIGN, FME_PORT_RELEASE
from tests.fakes.dfl.machine import DflMachine, FakeSystemCalls

DRIVER: Final = "vfio-pci"


def add_sriov(machine: DflMachine, ports: int) -> None:
    """Let the machine's cards have virtual functions."""
    for pci in ("drivers", "drivers_probe"):
        place = machine.folder / "sys/bus/pci" / pci
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if pci == "drivers" else place.touch()
    (machine.folder / "sys/bus/pci/drivers" / DRIVER).mkdir()
    for device in _list_devices(machine.folder):
        (device / "sriov_numvfs").write_text("0\n")
        (device / "sriov_totalvfs").write_text(f"{ports}\n")
        (device / "sriov_drivers_autoprobe").write_text("1\n")


class SriovCalls(FakeSystemCalls):
    """The system calls on a machine with ``add_sriov``; the state is in its folder, as all of it."""

    def __init__(self, machine: DflMachine, at_change: Callable[[], None] = lambda: None) -> None:
        super().__init__(at_change)
        self._machine = machine.folder
        self._change = at_change

    def ioctl(self, descriptor: int, request: int, argument: bytes | int) -> None:
        if request not in (FME_PORT_RELEASE, FME_PORT_ASSIGN):
            super().ioctl(descriptor, request, argument)
            return
        assert isinstance(argument, bytes)
        (port,) = struct.unpack("=i", argument)
        fme = Path(f"/proc/self/fd/{descriptor}").readlink().name
        [region] = [one.parent for one in self._machine.glob(f"sys/devices/*/*/fpga_region/*/{fme}")]
        self._change()
        if request == FME_PORT_RELEASE:
            self._release(region, port)
        else:
            self._assign(region, port)
        self._change()

    def write(self, descriptor: int, data: bytes) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        text = data.decode().strip()
        if path.name == "sriov_numvfs":
            self._change()
            self._set_count(path, int(text))
            self._change()
        elif path.name == "drivers_probe":
            [device] = self._machine.glob(f"sys/devices/*/{text}")
            override = (device / "driver_override").read_text().strip()
            self._change()
            (device / "driver").symlink_to(self._machine / "sys/bus/pci/drivers" / override)
            self._change()
        elif path.name in ("driver_override", "sriov_drivers_autoprobe"):
            path.write_text(f"{text}\n")
        else:
            super().write(descriptor, data)

    def _release(self, region: Path, port: int) -> None:
        away = region.parent.parent / "released"
        if _find_port(away, port) is not None:
            raise OSError(errno.EBUSY, "the port is released")
        found = _find_port(region, port)
        if found is None:
            raise OSError(errno.EINVAL, "no such port")
        if (self._machine / "users" / found.name).exists():
            raise OSError(errno.EBUSY, "the port is open")
        away.mkdir(exist_ok=True)
        found.rename(away / found.name)
        self._log(f"release {port}")

    def _assign(self, region: Path, port: int) -> None:
        device = region.parent.parent
        if (device / "sriov_numvfs").read_text().strip() != "0":
            raise OSError(errno.EBUSY, "virtual functions have the ports")
        if _find_port(region, port) is not None:
            raise OSError(errno.EBUSY, "the port is not released")
        refusal = self._machine / f"refuse-assign-{port}"
        if refusal.exists():
            refusal.unlink()
            raise OSError(errno.EBUSY, "the port cannot be given back now")
        found = _find_port(device / "released", port)
        if found is None:
            undriven = _find_port(self._machine / "undriven", port, region)
            raise OSError(errno.EINVAL if undriven is None else errno.EBUSY, "no such released port")
        found.rename(region / found.name)
        if (self._machine / "undriven").exists():
            DflMachine(self._machine).take_driver(int(found.name.rpartition(".")[2]))
        self._log(f"assign {port}")

    def _set_count(self, path: Path, count: int) -> None:
        device = path.parent
        old = int(path.read_text())
        if old and count:
            raise OSError(errno.EBUSY, "there are virtual functions")
        if count > len([*device.glob("released/*")]):
            raise OSError(errno.EINVAL, "not so many ports are released")
        for link in device.glob("virtfn*"):
            shutil.rmtree(link.resolve())
            shutil.rmtree(self._machine / "sys/kernel/iommu_groups" / self._group(device, link.name))
            link.unlink()
        for number in range(count):
            address = f"{device.name[:-1]}{number + 1}"
            folder = device.parent / address
            folder.mkdir()
            (folder / "driver_override").write_text("\n")
            group = self._machine / "sys/kernel/iommu_groups" / self._group(device, f"virtfn{number}")
            (group / "devices" / address).mkdir(parents=True)
            (folder / "iommu_group").symlink_to(group)
            (device / f"virtfn{number}").symlink_to(folder)
        path.write_text(f"{count}\n")
        self._log(f"sriov_numvfs {count}")

    def _group(self, device: Path, link: str) -> str:
        """The number of a virtual function's IOMMU group."""
        return str(40 + 10 * _list_devices(self._machine).index(device) + int(link.removeprefix("virtfn")))

    def _log(self, line: str) -> None:
        with (self._machine / "log").open("a") as log:
            log.write(f"{line}\n")


def _find_port(folder: Path, port: int, region: Path | None = None) -> Path | None:
    """Return the folder of the port with this id, which ``region`` has as well; None: ``folder`` has none."""
    ports = (
        one for one in folder.glob("dfl-port.*") if (one / "id").exists() and ((region or folder) / one.name).exists()
    )
    found = (one for one in ports if (one / "id").read_text().strip() == str(port))
    return next(found, None)


def _list_devices(folder: Path) -> list[Path]:
    return sorted(one.parent for one in folder.glob("sys/devices/*/*/fpga_region"))
