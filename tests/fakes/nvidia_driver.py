"""NVIDIA's driver as files in a folder: where distributions, driver containers and GKE install it, with its devices."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

VERSION = "580.95.05"
KERNEL = "6.8.0-31-generic"
ADDRESS = "0000:3b:00.0"
"""The PCI address of the one card."""
LIBRARIES = (
    "libcuda.so",
    "libnvidia-ml.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-nvvm.so",
    "libnvidia-opencl.so",
    "libnvidia-opticalflow.so",
    "libGLX_nvidia.so",
    "libnvidia-allocator.so",
    "libnvidia-vulkan-producer.so",
)
BINARIES = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-xconfig")
SHARED = ("glvnd/egl_vendor.d/10_nvidia.json", "egl/egl_external_platform.d/15_nvidia_gbm.json", "nvidia/nvoptix.bin")
MAJORS = {"nvidia": 195, "nvidia-caps": 236, "nvidia-uvm": 511}
FIRST_INSTANCE_MINOR = 12
"""The minor number of the capability of GPU instance 1; that of its compute instance 0 is the next one."""


@dataclass(frozen=True, kw_only=True)
class DriverLayout:
    """Where an installation has its files, below the driver's root."""

    root: str
    """The driver's root below the host's."""
    libraries: str
    binaries: str = "usr/bin"
    firmware: str = "usr/lib/firmware"
    shared: str = "usr/share"
    vulkan: str = "etc/vulkan"
    links: tuple[tuple[str, str], ...] = ()
    """Links of the distribution: path and target."""


LAYOUTS = {
    "ubuntu": DriverLayout(
        root="", libraries="usr/lib/x86_64-linux-gnu", links=(("lib", "usr/lib"), ("bin", "usr/bin"))
    ),
    "rhel": DriverLayout(root="", libraries="usr/lib64", links=(("lib64", "usr/lib64"), ("lib", "usr/lib"))),
    "driver container": DriverLayout(
        root="run/nvidia/driver",
        libraries="usr/lib/x86_64-linux-gnu",
        # Meant for the driver's root; on the host they lead elsewhere.
        links=(("lib", "/usr/lib"), ("sbin", "/usr/sbin"), ("var/run", "/run")),
    ),
    "gke": DriverLayout(
        root="home/kubernetes/bin/nvidia",
        libraries="lib64",
        binaries="bin",
        firmware="firmware",
        shared="share",
        vulkan="vulkan",
    ),
}


@dataclass(frozen=True, kw_only=True)
class NvidiaTree:
    """A host's file system with the driver."""

    host: Path
    layout: DriverLayout

    @property
    def driver(self) -> Path:
        return self.host / self.layout.root

    @property
    def libraries(self) -> Path:
        return self.driver / self.layout.libraries

    def remove(self, *names: str) -> None:
        """Remove files by their names, wherever they are, with the links to them left where they are."""
        for file in self.host.rglob("*"):
            if file.name in names and (file.is_symlink() or file.is_file()):
                file.unlink()


def write_nvidia_tree(host: Path, layout: DriverLayout, *, version: str = VERSION, n_cards: int = 1) -> NvidiaTree:
    """Write the driver and the kernel's files of ``n_cards`` cards below ``host``; no device nodes, which need root."""
    tree = NvidiaTree(host=host, layout=layout)
    for name in LIBRARIES:
        _write(tree.libraries / f"{name}.{version}")
        (tree.libraries / f"{name}.1").symlink_to(f"{name}.{version}")
    (tree.libraries / "libcuda.so").symlink_to("libcuda.so.1")
    _write(tree.libraries / "vdpau" / f"libvdpau_nvidia.so.{version}")
    _write(tree.libraries / "libnvidia-egl-gbm.so.1.1.2")
    _write(tree.libraries / "libc.so.6")  # somebody else's
    _write(tree.driver / "usr/lib/xorg/modules/drivers/nvidia_drv.so")
    for name in BINARIES:
        _write(tree.driver / layout.binaries / name, mode=0o755)
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        _write(tree.driver / layout.firmware / "nvidia" / version / name)
    for name in SHARED:
        _write(tree.driver / layout.shared / name)
    _write(tree.driver / layout.vulkan / "icd.d/nvidia_icd.json")
    _write(tree.driver / "etc/OpenCL/vendors/nvidia.icd")
    _write(tree.driver / "run/nvidia-persistenced/socket")
    _write_kernel_files(host, version, n_cards)
    # The last, because this program would follow an absolute one out of the tree.
    for path, target in layout.links:
        link = tree.driver / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    return tree


def _write_kernel_files(host: Path, version: str, n_cards: int) -> None:
    proc = host / "proc/driver"
    _write(proc / "nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n")
    _write(proc / "nvidia/params", "ModifyDeviceFiles: 1\n")
    majors = "".join(f"{major:3} {name}\n" for name, major in MAJORS.items())
    _write(host / "proc/devices", f"Character devices:\n  1 mem\n{majors}\nBlock devices:\n  8 sd\n195 nvidia-disk\n")
    lines = ["config 1", "monitor 2"]
    for name, minor in (("config", 1), ("monitor", 2)):
        _write(proc / "nvidia/capabilities/mig" / name, _access(minor))
    for card in range(n_cards):
        instance = proc / f"nvidia/capabilities/gpu{card}/mig/gi1"
        minor = FIRST_INSTANCE_MINOR + 9 * card
        _write(instance / "access", _access(minor))
        _write(instance / "ci0/access", _access(minor + 1))
        lines += [f"gpu{card}/gi1/access {minor}", f"gpu{card}/gi1/ci0/access {minor + 1}"]
        _write_drm(host, f"0000:{0x3B + card:02x}:00.0", card)
    _write(proc / "nvidia-caps/mig-minors", "\n".join(lines) + "\n")


def _write_drm(host: Path, address: str, card: int) -> None:
    device = host / "sys/devices/pci0000:3a" / address
    for name, minor in ((f"card{card}", card), (f"renderD{128 + card}", 128 + card)):
        _write(device / "drm" / name / "dev", f"226:{minor}\n")
    link = host / "sys/bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../../devices/pci0000:3a/{address}")


def make_device_nodes(host: Path, *, n_cards: int = 1, capabilities: Iterable[int] = ()) -> None:
    """Make the device nodes, as nvidia-modprobe and udev do. Needs CAP_MKNOD."""
    nodes = [
        ("nvidiactl", 195, 255),
        ("nvidia-modeset", 195, 254),
        ("nvidia-uvm", 511, 0),
        ("nvidia-uvm-tools", 511, 1),
    ]
    nodes += [(f"nvidia-caps/nvidia-cap{minor}", 236, minor) for minor in (1, 2, *capabilities)]
    for card in range(n_cards):
        address = f"0000:{0x3B + card:02x}:00.0"
        drm = ((f"card{card}", card, "card"), (f"renderD{128 + card}", 128 + card, "render"))
        nodes += [(f"nvidia{card}", 195, card), *((f"dri/{name}", 226, minor) for name, minor, _ in drm)]
        for name, _, kind in drm:
            link = host / "dev/dri/by-path" / f"pci-{address}-{kind}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../{name}")
    for name, major, minor in nodes:
        path = host / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))


def _access(minor: int) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


def _write(path: Path, text: str = "", mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
