"""The two layers of the image: Debian's packages and those of the lock file below, Kerf above.

The image's own Python installs packages and compiles: it is started by the image's own dynamic linker, so that neither
a change of root nor the same version on this machine is needed.
"""

import ensurepip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.runtime import file_lock
from tools.image import description
from tools.image.archive import add_file
from tools.image.installed_wheel import finish_installation
from tools.supply_chain.lock import ROOT
from tools.supply_chain.sbom import build_sbom

_DEBS: Final = "./var/cache/apt/archives/"
_NEEDED: Final = ("etc", "lib", "lib64", "usr")
"""Folders of Debian's packages that are kept; the others have caches, logs and device nodes."""
_UNNEEDED: Final = ("usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug")
_EMPTY_FOLDERS: Final = ("dev", "proc", "sys", "tmp", "run", "var/tmp")
"""Where a runtime mounts something, or a pod a volume."""
_PACKAGE_FIELDS: Final = ("Package", "Version", "Architecture", "Maintainer", "Source", "Homepage", "Description")
_STATUS: Final = "var/lib/dpkg/status.d"
"""Where scanners look for Debian's packages in an image without dpkg."""
_PACKAGE_FILES: Final = "usr/share/kerf/debian.json"
SOURCES: Final = ("api", "cdi", "driver", "deploy/classic", "deploy/crds", "deploy/examples")
SOURCE_FILES: Final = ("kerf_dra/__init__.py", "pyproject.toml", "README.md", "LICENSE")
"""The folders and files that the wheel of Kerf is made of."""
CDI_HOOK_MODULE: Final = Path(__file__).parent / "cdi_hook"
"""The Go module with the requirements of the hook and of the rest of the container toolkit of NVIDIA."""
_HOOK_PACKAGE: Final = "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"
_KEPT: Final = 4
"""Layers of a kind that stay in the cache: for a few checkouts beside one another, and for the earlier version of
``tests/upgrade``."""
_TAIL: Final = 20
"""The number of lines of a failed command that are shown."""


class ImageBuildError(RuntimeError):
    """The image cannot be made; the message says what is missing, or how the output of a command ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInputs:
    """What an image is made of."""

    locks: Sequence[Path]
    """The lock files of its packages."""
    wheel: Path | None = None
    """Kerf's wheel; None: it is built from this checkout."""
    program: Path = ROOT / description.PROGRAM_SOURCE
    """The image's program, which imports what the wheel has."""
    with_simulated: bool = False
    """Whether Kerf has what imitates a cluster or hardware: the command ``demo`` and the backends without hardware."""


OWN: Final = ImageInputs(locks=tuple(ROOT / lock for lock in description.LOCKS))
"""What this checkout's image is made of."""


def cache() -> Path:
    """Return the folder of the layers."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kerf" / "image"


def build_layers(inputs: ImageInputs = OWN, *, with_cdi_hook: bool) -> Sequence[Path]:
    """Return the files of the layers, from the lowest, made if needed; other processes wait meanwhile.

    Without the hook for containers with NVIDIA GPUs no Go is needed. Raises ImageBuildError.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with file_lock.acquire(cache()):
        layers = _build_layers(inputs, with_cdi_hook=with_cdi_hook)
        for layer in layers:
            layer.touch()  # those that were not used for the longest time go first
    return layers


def _build_layers(inputs: ImageInputs, *, with_cdi_hook: bool) -> Sequence[Path]:
    locks = [lock.read_bytes() for lock in inputs.locks]
    lower_key = _key([Path(__file__).read_bytes(), json.dumps(description.lower_layer()).encode(), *locks])
    lower = cache() / f"packages-{lower_key}.tar"
    if not lower.exists():
        with _stage() as (root, scratch):
            _unpack_debian(root, scratch)
            _install_packages(root, inputs.locks)
            _compile(root, root)
            _write_layer(root, lower)
            _remove_old("packages-*.tar")
    modules = [(CDI_HOOK_MODULE / "go.sum").read_bytes()] if with_cdi_hook else []
    contents = _sources() if inputs.wheel is None else iter([inputs.wheel.read_bytes()])
    left_out = () if inputs.with_simulated else description.IMITATIONS
    added = [json.dumps(left_out).encode(), inputs.program.read_bytes()]
    upper_key = _key([lower_key.encode(), *added, *modules, *contents])
    upper = cache() / f"kerf-{upper_key}.tar"
    if not upper.exists():
        with _stage() as (root, scratch):
            below = scratch / "below"
            with tarfile.open(lower) as tar:
                tar.extractall(below, filter="tar")
            _install_kerf(root, below, inputs.wheel or _build_wheel(scratch), inputs.program)
            finish_installation(root / description.SITE_PACKAGES, left_out)
            _write_sbom(root, below, inputs)
            if with_cdi_hook:
                _build_cdi_hook(root / description.CDI_HOOK)
            _write_layer(root, upper)
            _remove_old("kerf-*.tar")
    return [lower, upper]


def _sources() -> Iterator[bytes]:
    """Yield the names and contents of all files that Kerf's wheel is made of."""
    folders = [path for name in SOURCES for path in sorted((ROOT / name).rglob("*"))]
    for path in (*folders, *(ROOT / name for name in SOURCE_FILES)):
        if path.is_file() and path.suffix != ".pyc":
            yield path.relative_to(ROOT).as_posix().encode()
            yield path.read_bytes()


def _unpack_debian(root: Path, scratch: Path) -> None:
    """Unpack Debian's packages into ``root``, and list them as scanners look for them.

    Nothing of them is run: their installation is for systems that have a shell and are changed later.
    """
    if shutil.which("mmdebstrap") is None:
        raise ImageBuildError("there is no mmdebstrap: install the package mmdebstrap (Debian's and Ubuntu's name)")
    status = scratch / "status"
    status.write_text("\n".join(_pretend_installed(name) for name in description.NOT_INSTALLED))
    archive = scratch / "debian.tar"
    command = [
        "mmdebstrap",
        "--variant=extract",
        f"--include={','.join(description.DEBIAN_PACKAGES)}",
        f"--setup-hook=copy-in {status} /var/lib/dpkg",
        "--skip=essential/unlink",  # the packages themselves stay, for what they say about themselves
        "--skip=cleanup",
        description.SUITE,
        str(archive),
    ]
    _run("unpacking Debian's packages", command)
    debs = scratch / "debs"
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        tar.extractall(debs, [one for one in members if one.name.startswith(_DEBS)], filter="tar")
        tar.extractall(root, [one for one in members if _is_needed(one.name)], filter="tar")
    packages = [_control_fields(deb) for deb in sorted(debs.rglob("*.deb"))]
    for package in packages:
        _write(root / _STATUS / package["Package"], "".join(f"{key}: {value}\n" for key, value in package.items()))
    _write(root / _PACKAGE_FILES, json.dumps(packages))
    for path, content in description.base_files().items():
        _write(root / path, content)
    for path in _EMPTY_FOLDERS:
        (root / path).mkdir(parents=True)


def _is_needed(member: str) -> bool:
    name = member.removeprefix("./")
    is_documentation = name.startswith("usr/share/doc/") and not name.endswith("/copyright")  # licences are kept
    return name.startswith(_NEEDED) and not name.startswith(_UNNEEDED) and not is_documentation


def _pretend_installed(name: str) -> str:
    return (
        f"Package: {name}\nStatus: install ok installed\nVersion: 99\nArchitecture: {description.architecture()}\n"
        f"Provides: {name}-2.0\nMaintainer: none\nDescription: not installed\n"
    )


def _control_fields(deb: Path) -> Mapping[str, str]:
    said = _run("reading a package", ["dpkg-deb", "--field", str(deb), *_PACKAGE_FIELDS])
    fields = (line.partition(": ") for line in said.splitlines() if not line.startswith(" "))
    return {name: value for name, _, value in fields}


def _install_packages(root: Path, locks: Sequence[Path]) -> None:
    """Install the packages of the lock files, with hashes, and with nothing built from source."""
    given = [f"--requirement={lock}" for lock in locks]
    _pip(root, ["--require-hashes", "--only-binary=:all:", f"--target={root / description.SITE_PACKAGES}", *given])
    shutil.rmtree(root / description.SITE_PACKAGES / "bin", ignore_errors=True)  # started by this machine's linker


def _build_wheel(scratch: Path) -> Path:
    """Build Kerf's wheel from this checkout into ``scratch``, and return its file."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    _run(
        "building Kerf's wheel",
        [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={scratch}"],
        environment,
    )
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _install_kerf(root: Path, below: Path, wheel: Path, program: Path) -> None:
    """Install Kerf's wheel and program into ``root``, with the Python in ``below``."""
    _pip(below, ["--no-deps", "--no-index", f"--target={root / description.SITE_PACKAGES}", str(wheel)])
    shutil.rmtree(root / description.SITE_PACKAGES / "bin", ignore_errors=True)
    _compile(below, root)
    installed = root / description.PROGRAM
    _write(installed, program.read_text())
    installed.chmod(0o755)


def _write_sbom(root: Path, below: Path, inputs: ImageInputs) -> None:
    """Write the bill of materials, with Debian's packages beside those of the lock file."""
    sbom = dict(build_sbom(*inputs.locks, with_simulated=inputs.with_simulated))
    packages: list[dict[str, str]] = json.loads((below / _PACKAGE_FILES).read_text())
    sbom["components"] = [*sbom["components"], *map(_component, packages)]
    _write(root / description.SBOM, json.dumps(sbom, indent=1))


def _component(package: Mapping[str, str]) -> Mapping[str, Any]:
    name, version, architecture = package["Package"], package["Version"], package["Architecture"]
    reference = f"pkg:deb/debian/{name}@{version}?arch={architecture}&distro={description.SUITE}"
    return {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}


def _build_cdi_hook(target: Path) -> None:
    if shutil.which("go") is None:
        raise ImageBuildError("there is no go to build the hook for NVIDIA GPUs: install Go, or leave the hook out")
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-C", str(CDI_HOOK_MODULE), "-mod=readonly", "-trimpath", "-buildvcs=false"]
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "1"}
    _run("building nvidia-cdi-hook", [*command, "-ldflags=-s -w", "-o", str(target), _HOOK_PACKAGE], environment)


def _pip(root: Path, arguments: Sequence[str]) -> None:
    with as_file(files(ensurepip) / "_bundled") as bundled:
        (wheel,) = bundled.glob("pip-*.whl")
        command = [f"{wheel}/pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *arguments]
        _python(root, "installing packages", command)


def _compile(root: Path, target: Path) -> None:
    """Compile what is in ``target`` with the Python of ``root``.

    The files of an image do not change, so byte code is used without a look at its source.
    """
    folders = [path for path in (target / "usr/lib/python3", target / f"usr/lib/{description.PYTHON}") if path.is_dir()]
    options = ["-q", "-q", "-s", str(target), "-p", "/", "--invalidation-mode", "unchecked-hash", *map(str, folders)]
    # Some packages bring modules for later versions of Python, which cannot be compiled and are not imported.
    _python(root, "compiling", ["-m", "compileall", *options], may_fail=True)


def _python(root: Path, subject: str, arguments: Sequence[str], *, may_fail: bool = False) -> None:
    """Run the Python of ``root`` on this machine."""
    (linker,) = (root / "lib64").glob("ld-linux-*")
    libraries = ":".join(str(folder) for part in ("lib", "usr/lib") for folder in (root / part).glob("*-linux-gnu"))
    command = [str(linker), "--library-path", libraries, str(root / "usr/bin" / description.PYTHON), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0"}
    _run(subject, command, environment, may_fail=may_fail)


def _write_layer(root: Path, layer: Path) -> None:
    """Write ``root`` as a tar archive in which the same files give the same bytes: sorted, root's, without times."""
    layer.parent.mkdir(parents=True, exist_ok=True)
    unfinished = layer.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(path, path.relative_to(root).as_posix())
            if entry.isreg() or entry.islnk():
                add_file(tar, entry.name, path, mode=entry.mode)
                continue
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o1777 if entry.name in {"tmp", "var/tmp"} else entry.mode
            tar.addfile(entry)
    unfinished.replace(layer)


def _remove_old(pattern: str) -> None:
    """Remove layers that are unlikely to be needed again."""
    layers = sorted(cache().glob(pattern), key=lambda path: path.stat().st_mtime)
    for layer in layers[:-_KEPT]:
        layer.unlink(missing_ok=True)


@contextmanager
def _stage() -> Iterator[tuple[Path, Path]]:
    """Yield an empty root and a folder for what is needed meanwhile, on the file system of the cache."""
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".building-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for one in ("root", "scratch"):
            (folder / one).mkdir(mode=0o755)
        yield folder / "root", folder / "scratch"


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _key(contents: Sequence[bytes]) -> str:
    """Return a hash of twelve hex digits, enough for the few layers of a cache."""
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]


def _run(
    subject: str, command: Sequence[str], environment: Mapping[str, str] | None = None, *, may_fail: bool = False
) -> str:
    """Run ``command`` and return its output. Raises ImageBuildError when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 and not may_fail:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL:])
        raise ImageBuildError(f"{subject} failed:\n{last}")
    return done.stdout
