"""Trees of the shapes that recordings of real cards have: what ``/sys`` of five cards showed, and in which spelling.

The facts are of the recordings that OPAE tests itself with (OFS/opae-sdk, ``mock_sys_dfl_*.tar.gz`` of its tests; its
version of 13 May 2025): names of files and folders, ids, and how their values are written. Nothing is copied from them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.dfl.machine import CardLayout

PAGE: Final = 4096
INTEL: Final = 0x8086
VIRTIO: Final = (0x1AF4, 0x1000)
"""Vendor and device of the function of an OFS card that is a network device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedShape:
    """What differs between the recorded cards."""

    name: str
    address: str
    """The PCI address of the function with the management engine."""
    root: str
    """The PCIe root complex, and the bridge that the card is behind."""
    device_id: int
    numa_node: str = ""
    """As it is written; empty: there is no such file."""
    compat_id: str = ""
    """As it is written; empty: there is no region that can be reconfigured."""
    afu_id: str = ""
    """As it is written; empty: the port does not say which function is behind it."""
    region: int = 0
    """The number of the region below the management engine, and of its folder's last part."""
    folder: int = 0
    has_engine_sensor: bool = False
    board_sensor: str
    """The folder of the board's sensors below the management engine."""
    is_padded: bool = False
    """Whether values are followed by null bytes up to a page."""
    status: str = ""
    """What the FPGA manager says of the last load."""
    other_functions: tuple[int, ...] = ()
    """The numbers of the card's PCI functions with a region each, and neither engine nor port."""
    virtio_function: int | None = None
    virtual_functions: tuple[int, ...] = ()
    """The numbers of the PCI functions that are virtual ones of the first, which keeps its port."""

    @property
    def layout(self) -> CardLayout:
        """What Kerf reads of the card."""
        node = int(self.numa_node or 0)
        root = self.root.partition("/")[0]
        return CardLayout(
            pci_address=self.address, ports=1, interface=self.compat_id, numa_node=max(0, node), root=root
        )


SHAPES: Final = (
    RecordedShape(
        name="n3000",
        address="0000:05:00.0",
        root="pci0000:00/0000:00:02.0",
        device_id=0x0B30,
        compat_id="a5d72a3cc8b04939912cf715e5dc10ca",
        afu_id="9aeffe5f84570612c000c9660d824272",
        region=2,
        board_sensor="dfl_dev.6/subdev_spi_altera.3.auto/spi_master/spi4/spi4.0/n3000bmc-hwmon.6.auto/hwmon/hwmon6",
        is_padded=True,
        status="0",
    ),
    RecordedShape(
        name="d5005",
        address="0000:05:00.0",
        root="pci0000:00/0000:00:02.0",
        device_id=0x0B2B,
        compat_id="9346116da52d5ca8b06aa9a389ef7c8d",
        afu_id="f7df405cbd7acf7222f144b0b93acd18",
        region=2,
        board_sensor="dfl-fme.0.10/spi-altera.4.auto/spi_master/spi4/spi4.0/d5005bmc-hwmon.6.auto/hwmon/hwmon4",
        is_padded=True,
        status="0",
    ),
    RecordedShape(
        name="n6000-sku0",
        address="0000:01:00.0",
        root="pci0000:00/0000:00:01.0",
        device_id=0xBCCE,
        numa_node="-1",
        compat_id="98b4d5bc98ba5f4b98d9a2841ccf11b0",
        region=4,
        has_engine_sensor=True,
        board_sensor="dfl_dev.3/n6000bmc-hwmon.1.auto/hwmon/hwmon1",
        other_functions=(1, 2, 4),
        virtio_function=3,
    ),
    RecordedShape(
        name="n6000-sku1",
        address="0000:b1:00.0",
        root="pci0000:b0/0000:b0:02.0",
        device_id=0xBCCE,
        numa_node="1",
        compat_id="ce3139c959cf528ca27751c50829797a",
        region=1,
        folder=1,
        has_engine_sensor=True,
        board_sensor="dfl_dev.3/n6000bmc-hwmon.2.auto/hwmon/hwmon4",
        other_functions=(1, 2, 4),
        virtio_function=3,
        virtual_functions=(5, 6, 7),
    ),
    RecordedShape(
        name="c6100",
        address="0000:15:00.0",
        root="pci0000:14/0000:14:02.0",
        device_id=0xBCCE,
        numa_node="0",
        has_engine_sensor=True,
        board_sensor="dfl_dev.5/c6100bmc-hwmon.1.auto/hwmon/hwmon2",
        other_functions=(1, 2, 3),
    ),
)


class ShapeTree:
    """A tree of one shape below a folder."""

    def __init__(self, root: Path, shape: RecordedShape) -> None:
        self.root = root
        self.shape = shape
        self.device = root / "sys/devices" / shape.root / shape.address
        self.region = self.device / "fpga_region/region0"
        self.engine = self.region / "dfl-fme.0"
        self.port = self.region / "dfl-port.0"
        self.sensor = self.engine / shape.board_sensor
        for folder in ("sys/class/fpga_region", "sys/bus/pci/devices", "proc/sys/kernel", "dev"):
            (root / folder).mkdir(parents=True)
        (root / "proc/sys/kernel/osrelease").write_text("5.15.52-dfl\n")
        self._add_functions()
        self._add_card()

    def write(self, path: Path, text: str) -> None:
        """Write a value as the recording has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = f"{text}\n".encode() if text else b""
        path.write_bytes(content.ljust(PAGE, b"\0") if self.shape.is_padded else content)

    def _add_functions(self) -> None:
        shape = self.shape
        self._add_function(0, INTEL, shape.device_id)
        for number, function in enumerate(shape.other_functions):
            device = self._add_function(function, INTEL, shape.device_id)
            taken = number + 1 + (0 < shape.region <= number + 1)
            self._add_region(device / f"fpga_region/region{taken}")
        if shape.virtio_function is not None:
            self._add_function(shape.virtio_function, *VIRTIO)
        for number, function in enumerate(shape.virtual_functions):
            device = self._add_function(function, INTEL, shape.device_id + 1)
            (device / "physfn").symlink_to(f"../{shape.address}")
            (self.device / f"virtfn{number}").symlink_to(f"../{device.name}")
        self.write(self.device / "sriov_numvfs", str(len(shape.virtual_functions)))

    def _add_function(self, function: int, vendor: int, device_id: int) -> Path:
        device = self.device.with_name(f"{self.shape.address[:-1]}{function}")
        self.write(device / "vendor", f"{vendor:#06x}")
        self.write(device / "device", f"{device_id:#06x}")
        self.write(device / "class", "0x120000")
        if self.shape.numa_node:
            self.write(device / "numa_node", self.shape.numa_node)
        if vendor == INTEL:
            (device / "driver").symlink_to(self.root / "sys/bus/pci/drivers/dfl-pci")
        (self.root / "sys/bus/pci/devices" / device.name).symlink_to(device)
        return device

    def _add_region(self, region: Path) -> None:
        """Add a region, whose own ``compat_id`` cannot be read in the kernel: recordings have null bytes for it."""
        region.mkdir(parents=True)
        if self.shape.other_functions:
            (region / "compat_id").write_bytes(bytes(1024))
        (region / "device").symlink_to("../..")
        (self.root / "sys/class/fpga_region" / region.name).symlink_to(region)

    def _add_card(self) -> None:
        shape = self.shape
        self._add_region(self.region)
        self.write(self.engine / "ports_num", "1")
        for name in ("fme_errors", "catfatal_errors", "nonfatal_errors", "pcie0_errors", "pcie1_errors"):
            self.write(self.engine / "errors" / name, "0" if shape.is_padded and "fatal" not in name else "0x0")
        if shape.compat_id:
            child = self.engine / f"dfl-fme-region.{shape.folder}/fpga_region/region{shape.region}"
            self.write(child / "compat_id", shape.compat_id)
            (self.root / "sys/class/fpga_region" / child.name).symlink_to(child)
            self.write(self.engine / "dfl-fme-mgr.0/fpga_manager/fpga0/status", shape.status)
        self.write(self.port / "id", "0")
        self.write(self.port / "power_state", "0x0")
        if shape.afu_id:
            self.write(self.port / "afu_id", shape.afu_id)
        if shape.name != "n6000-sku0":  # whose port logs no errors
            self.write(self.port / "errors/errors", "0x0")
        if shape.has_engine_sensor:
            self.write(self.engine / "hwmon/hwmon1/name", "dfl_fme_thermal")
            self.write(self.engine / "hwmon/hwmon1/temp1_input", "48000")
        if shape.is_padded:
            (self.region / "region0").symlink_to("region0")  # leads to itself
            (self.engine / "driver").symlink_to(".")
        self.write(self.sensor / "name", f"{shape.name.partition('-')[0]}bmc_hwmon")
        for number, (label, celsius) in enumerate((("FPGA Core", 43), ("QSFP0", None)), 1):
            self.write(self.sensor / f"temp{number}_label", f"{label} Temperature")
            self.write(self.sensor / f"temp{number}_input", "" if celsius is None else f"{celsius}500")
            self.write(self.sensor / f"temp{number}_max", "" if celsius is None else "90000")
            self.write(self.sensor / f"temp{number}_crit", "" if celsius is None else "100000")
        # What two of the cards say, and what cannot be: a limit of 1.5 C, and a die of 4294710 C.
        self.write(self.sensor / "temp36_input", "30585")
        self.write(self.sensor / "temp36_crit", "1500")
        self.write(self.sensor / "temp18_input", "4294710000")
        self.write(self.sensor / "temp18_crit", "105000")
