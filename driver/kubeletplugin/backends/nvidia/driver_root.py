"""Finds the files of NVIDIA's driver below its root: what programs in containers load, run, read and talk to.

The driver's user space may be on the host (``/``), below the directory of a driver container (``/run/nvidia/driver``),
or of a cloud provider (``/home/kubernetes/bin/nvidia`` in GKE). What belongs to it, and where it is looked for, is as
in nvidia-container-toolkit v1.20.1 (pkg/nvcdi, internal/discover):

- a library of the driver ends with the driver's version (``libcuda.so.580.95.05``), so that no list of them is needed;
  its folders are those that hold such libraries;
- a file keeps in containers the path that it has below the root. Configuration goes where loaders look for it.

The linker's cache below the root (``/etc/ld.so.cache``) is not read: all distributions that NVIDIA supports have one of
``LIBRARY_FOLDERS``, where the toolkit looks first, too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot, is_plain_path

LIBRARY_FOLDERS: Final = (
    "/",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
)
"""Folders of libraries: RHEL, SUSE and Arch; Debian and Ubuntu; Debian's alternatives; GKE."""
_UNVERSIONED_LIBRARIES: Final = ("libnvidia-nvvm70.so.*",)
"""Libraries in the same folders with a version of their own: the compiler of drivers before release 575."""
_PLATFORM_LIBRARIES: Final = tuple(
    f"libnvidia-egl-{platform}.so.*.*" for platform in ("gbm", "wayland", "wayland2", "xcb", "xlib")
)
"""EGL's platform libraries, which are released apart from the driver; in any library folder."""
_X_FOLDERS: Final = tuple(
    f"{base}/{modules}/{kind}"
    for base in ("/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64")
    for modules in ("modules", "modules/updates")
    for kind in ("drivers", "extensions")
)
"""Folders of X.Org's modules, after those beside the driver's libraries."""
_X_SUBFOLDERS: Final = (
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
_BINARY_FOLDERS: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_BINARIES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
_SOCKET_FOLDERS: Final = ("/run", "/var/run")
_SOCKETS: Final = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_FIRMWARE: Final = ("gsp*.bin", "ucodes*.bin")
"""Firmware of the GPU's system processor and, since release 615, of other ones, in ``nvidia/VERSION`` of a folder."""
_CONFIG_FOLDERS: Final = ("/etc", "/usr/local/share", "/usr/share")
"""``/etc`` and XDG_DATA_DIRS' default (XDG Base Directory Specification)."""
_SHARED_CONFIGS: Final = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
"""Configuration that is below ``/usr/share`` in containers."""
_OPENCL_CONFIG: Final = "OpenCL/vendors/nvidia.icd"
"""Configuration that is below ``/etc`` in containers; so are those of Vulkan."""
_VULKAN_CONFIGS: Final = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)
_VERSION: Final = re.compile(r"\d+(\.\d+)+")


class DriverFilesMissingError(HardwareBusyError):
    """The driver's user space is not below its root, or is of another version than the loaded kernel module."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DriverFile:
    """A file of the driver that containers get."""

    container_path: str
    host_path: str
    """The path as the container runtime sees it, without symbolic links below the driver's root."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SymbolicLink:
    """A symbolic link that containers get."""

    path: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """The files of one version of the driver below one root."""

    version: str
    library_folders: tuple[str, ...]
    """The folders of libraries that end with the driver's version, in containers."""
    libraries: tuple[DriverFile, ...]
    files: tuple[DriverFile, ...]
    """Binaries, firmware, configuration and X.Org's modules."""
    sockets: tuple[DriverFile, ...]
    """Sockets of the driver's daemons."""
    links: tuple[SymbolicLink, ...]
    """Links to libraries that programs open by the link's name."""


def find_driver_files(
    root: FileRoot, version: str, *, machine: str, kernel_release: str, firmware_path: str = ""
) -> DriverFiles:
    """Find the files of the driver of ``version``, the one of the loaded kernel module (NVML's, or
    ``/proc/driver/nvidia/version``).

    ``machine`` and ``kernel_release`` are uname(2)'s; ``firmware_path`` is the kernel's own folder of firmware, if it
    has one (``/sys/module/firmware_class/parameters/path``). Raises DriverFilesMissingError when there is no libcuda of
    that version below ``root``.
    """
    search = _Search(root, version)
    libraries = search.find_libraries()
    modules = search.find_x_modules()
    firmware = search.find_firmware(_firmware_folders(root, kernel_release, firmware_path))
    files = [*modules, *search.find_binaries(), *firmware, *search.find_configs(machine)]
    return DriverFiles(
        version=version,
        library_folders=search.folders,
        libraries=_without_repetition(libraries),
        files=_without_repetition(files),
        sockets=_without_repetition(search.find_sockets()),
        links=_first_links([*search.find_links(libraries), *_usual_links(version, [*libraries, *modules])]),
    )


class _Search:
    """A search for the driver of one version below one root."""

    def __init__(self, root: FileRoot, version: str) -> None:
        self._root = root
        self._version = version
        if _VERSION.fullmatch(version) is None:
            raise DriverFilesMissingError(
                f"{version!r} is not a version of NVIDIA's driver: is its kernel module loaded?"
            )
        self.folders = tuple(dict.fromkeys(_folder(path) for path in self._glob(LIBRARY_FOLDERS, f"lib*.so.{version}")))
        if not any(self._glob(self.folders, f"libcuda.so.{version}")):
            raise DriverFilesMissingError(self._describe_missing())

    def find_libraries(self) -> list[DriverFile]:
        with_vdpau = [*self.folders, *(f"{folder}/vdpau" for folder in self.folders)]
        found = [
            *self._glob(with_vdpau, f"*.so.{self._version}"),
            *(path for pattern in _UNVERSIONED_LIBRARIES for path in self._glob(self.folders, pattern)),
            *(path for pattern in _PLATFORM_LIBRARIES for path in self._glob(LIBRARY_FOLDERS, pattern)),
        ]
        return [self._file(path) for path in found]

    def find_links(self, libraries: Sequence[DriverFile]) -> Iterator[SymbolicLink]:
        """Yield the links to libraries that are beside them: ``libcuda.so.1``, which the linker looks for."""
        paths = {library.container_path for library in libraries}
        for folder in dict.fromkeys(map(_folder, sorted(paths))):
            for path, target in self._root.find_links(folder):
                library = self._root.resolve(path)
                if library in paths:
                    yield SymbolicLink(path=path, target=target if "/" not in target else _relative(library, folder))

    def find_x_modules(self) -> list[DriverFile]:
        beside = [f"{folder.rstrip('/')}/{below}" for folder in self.folders for below in _X_SUBFOLDERS]
        names = ("nvidia_drv.so", f"libglxserver_nvidia.so.{self._version}")
        return self._first_files([*beside, *_X_FOLDERS], names)

    def find_binaries(self) -> list[DriverFile]:
        return self._first_files(_BINARY_FOLDERS, _BINARIES, is_executable=True)

    def find_sockets(self) -> list[DriverFile]:
        return self._first_files(_SOCKET_FOLDERS, _SOCKETS)

    def find_firmware(self, folders: Iterable[str]) -> list[DriverFile]:
        places = (f"{folder}/nvidia/{self._version}" for folder in folders)
        paths = (path for place in places for pattern in _FIRMWARE for path in self._root.find(place, pattern))
        return [file for path in paths if (file := self._file_at(path))]

    def find_configs(self, machine: str) -> Iterator[DriverFile]:
        """Yield configuration where loaders in containers look for it."""
        # RPM packages name the file after the machine; GKE has Vulkan's configuration directly below the root.
        vulkan = (*_VULKAN_CONFIGS, f"vulkan/icd.d/nvidia_icd.{machine}.json")
        for target, names, folders in (
            ("/usr/share", _SHARED_CONFIGS, _CONFIG_FOLDERS),
            ("/etc", (_OPENCL_CONFIG,), _CONFIG_FOLDERS),
            ("/etc", vulkan, (*_CONFIG_FOLDERS, "")),
        ):
            for name in names:
                if found := self._first_file(folders, name):
                    yield DriverFile(container_path=f"{target}/{name}", host_path=found.host_path)

    def _glob(self, folders: Iterable[str], pattern: str) -> Iterator[str]:
        """Yield the resolved paths of files in ``folders`` that match ``pattern``."""
        for folder in folders:
            for path in self._root.find(folder, pattern):
                if found := self._root.resolve_file(path):
                    yield found

    def _first_files(
        self, folders: Sequence[str], names: Iterable[str], *, is_executable: bool = False
    ) -> list[DriverFile]:
        found = (self._first_file(folders, name, is_executable=is_executable) for name in names)
        return [file for file in found if file is not None]

    def _first_file(self, folders: Sequence[str], name: str, *, is_executable: bool = False) -> DriverFile | None:
        """Return the file ``name`` in the first of ``folders`` that has it."""
        files = (self._file_at(f"{folder}/{name}", is_executable=is_executable) for folder in folders)
        return next((file for file in files if file is not None), None)

    def _file_at(self, path: str, *, is_executable: bool = False) -> DriverFile | None:
        found = self._root.resolve_file(path, is_executable=is_executable)
        return DriverFile(container_path=path, host_path=self._root.on_host(found)) if found else None

    def _file(self, resolved: str) -> DriverFile:
        return DriverFile(container_path=resolved, host_path=self._root.on_host(resolved))

    def _describe_missing(self) -> str:
        others = sorted({path.rpartition("libcuda.so.")[2] for path in self._glob(LIBRARY_FOLDERS, "libcuda.so.*.*")})
        missing = f"there is no libcuda.so.{self._version} below the driver root {self._root}"
        if others:
            return (
                f"{missing}, only {', '.join(others)}: the loaded kernel module and the driver's files are of different"
                " versions; reboot the node or restart its driver container"
            )
        return (
            f"{missing}, in none of {', '.join(LIBRARY_FOLDERS[1:3])} and the other library folders: is the driver"
            " installed, and is this its root (/run/nvidia/driver with a driver container, /home/kubernetes/bin/nvidia"
            " in GKE)?"
        )


def _usual_links(version: str, files: Iterable[DriverFile]) -> Iterator[SymbolicLink]:
    """Yield links that programs expect and that not every installation has."""
    targets = {
        "libcuda.so": ("libcuda.so", "libcuda.so.1"),
        "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
        "libGLX_nvidia.so": ("libGLX_indirect.so.0", f"libGLX_nvidia.so.{version}"),
        "libnvidia-allocator.so": ("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
        "libnvidia-vulkan-producer.so": ("libnvidia-vulkan-producer.so", f"libnvidia-vulkan-producer.so.{version}"),
        "libglxserver_nvidia.so": ("libglxserver_nvidia.so", f"libglxserver_nvidia.so.{version}"),
    }
    for file in files:
        folder, _, name = file.container_path.rpartition("/")
        link = targets.get(name.removesuffix(f".{version}"))
        if link is not None and name.endswith(f".{version}"):
            yield SymbolicLink(path=f"{folder}/{link[0]}", target=link[1])


def _firmware_folders(root: FileRoot, kernel_release: str, firmware_path: str) -> tuple[str, ...]:
    """Return the folders in which the kernel looks for firmware, below the driver's root (kernel's firmware docs)."""
    own = firmware_path.strip()
    host_root = str(root).rstrip("/")
    # A driver container sets the path on the host, which is below the driver's root.
    own = own.removeprefix(host_root) if own.startswith(f"{host_root}/") else own
    folders = ("/lib/firmware/updates", "/lib/firmware")
    usual = (path for folder in folders for path in (f"{folder}/{kernel_release}", folder))
    return (*([own] if own and is_plain_path(own) else []), *usual)


def _without_repetition(files: Iterable[DriverFile]) -> tuple[DriverFile, ...]:
    """Return the files sorted by their path in containers, the first found of each path."""
    first: dict[str, DriverFile] = {}
    for file in files:
        first.setdefault(file.container_path, file)
    return tuple(sorted(first.values()))


def _first_links(links: Iterable[SymbolicLink]) -> tuple[SymbolicLink, ...]:
    first: dict[str, SymbolicLink] = {}
    for link in links:
        first.setdefault(link.path, link)
    return tuple(sorted(first.values()))


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _relative(path: str, folder: str) -> str:
    """Return ``path`` as a link in ``folder`` gives it: by name if it is there, too."""
    return path.rpartition("/")[2] if _folder(path) == folder else path
