"""Builds of Kubernetes, containerd, Kueue and Helm from Go modules, in a cache outside the checkout.

A build is kept under a key of everything that it is made of: release, module files, our Go sources and the Go version.
Go's own checksums (``go.sum``, and the checksum database for containerd) say that the modules are the right ones.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.realcluster.versions import CONTAINERD, EXAMPLE_DRIVER, KUEUE, NEWEST, NVIDIA_DRIVER, KubernetesVersion

SOURCES: Final = Path(__file__).parent / "kube"
_HELM_SOURCES: Final = Path(__file__).parents[1] / "helm"
_HELM: Final = "helm.sh/helm/v3/cmd/helm"
_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"
_CONTAINERD_PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr")
_KUEUE: Final = "sigs.k8s.io/kueue"
_KUEUE_MODULES: Final = "kueue.mod"
"""Its sums are Kueue's own ``go.sum``: the checksum database does not know all of the modules that Kueue requires."""
_EXAMPLE_DRIVER: Final = "sigs.k8s.io/dra-example-driver"
_TEST_DRIVER: Final = "k8s.io/kubernetes/test/e2e/dra/test-driver"
_NVIDIA_DRIVER: Final = "sigs.k8s.io/dra-driver-nvidia-gpu"
_NVIDIA_DRIVER_MODULES: Final = "dra-driver-nvidia-gpu.mod"
"""Its own ``go.mod`` names a pre-release of Kubernetes, and a tag of go-nvfm, that the module proxy does not have."""
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
_COLD_KUBERNETES: Final = "9 minutes on two cores with empty caches, else half a minute"
_COLD_PART: Final = "3 minutes on two busy cores with empty caches, else seconds"
_COLD_CONTAINERD: Final = "3 minutes on two cores with empty caches, else seconds"
_COLD_KUEUE: Final = "17 minutes on two busy cores with empty caches, else seconds"
_COLD_HELM: Final = "3 minutes on two busy cores with empty caches, else seconds"
_COLD_EXAMPLE_DRIVER: Final = "4 minutes on two busy cores with empty caches, else seconds"
_COLD_NVIDIA_DRIVER: Final = "7 minutes on two cores with empty caches, else seconds"
_SAY_S: Final = 30.0
"""Seconds between two lines of progress when stderr is not a terminal."""
_TAIL: Final = 20
"""The number of lines of a failed command that are shown."""


class BuildError(RuntimeError):
    """A Go command failed; the message has the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of a cluster."""

    kube: Path
    """The program with Kubernetes, etcd and kubectl; its first argument names the part."""
    containerd: Path
    """The folder of containerd, its shim and ``ctr``."""


def cache() -> Path:
    """Return the folder of the builds."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kerf" / "realcluster"


def build(version: KubernetesVersion) -> Programs:
    """Return the programs of ``version``, built if needed. Raises BuildError when a Go command fails."""
    return Programs(kube=_kube(version), containerd=_containerd())


def _kube(version: KubernetesVersion) -> Path:
    modules = SOURCES / version.module_file
    ingredients = [modules, modules.with_suffix(".sum"), *sorted(SOURCES.glob("*.go"))]
    key = _key([version.release, version.build_tags, _go_version(), *(file.read_text() for file in ingredients)])
    program = cache() / f"kubernetes-{version.release}-{key}" / "kube"
    if not program.exists():
        common = ["-trimpath", "-mod=readonly", f"-modfile={version.module_file}", f"-tags={version.build_tags}"]
        _run(f"modules of Kubernetes {version.release}", ["mod", "download", "-x", common[2]], _environment())
        with _create_atomically(program.parent) as folder:
            command = ["build", "-v", *common, f"-ldflags={_linker_flags(version)}", "-o", str(folder / "kube"), "."]
            _run(f"building Kubernetes {version.release} ({_COLD_KUBERNETES})", command, _environment())
    return program


def build_with_kubernetes(sources: Path) -> Path:
    """Return the program of the Go sources in a folder, which use packages of the newest release, built if needed.

    Raises BuildError when a Go command fails.
    """
    modules = SOURCES / NEWEST.module_file
    ingredients = [modules, modules.with_suffix(".sum"), *sorted(sources.glob("*.go"))]
    key = _key([NEWEST.build_tags, _go_version(), *(file.read_text() for file in ingredients)])
    program = cache() / f"{sources.name}-{NEWEST.release}-{key}" / sources.name
    if not program.exists():
        common = ["-C", str(sources), "-v", "-trimpath", "-mod=readonly", f"-modfile={modules}", "-ldflags=-s -w"]
        with _create_atomically(program.parent) as folder:
            command = ["build", *common, "-o", str(folder / program.name), "."]
            _run(f"building {sources.name} with Kubernetes {NEWEST.release} ({_COLD_PART})", command, _environment())
    return program


def _containerd() -> Path:
    folder = cache() / f"containerd-{CONTAINERD}-{_key([_go_version()])}"
    if not folder.exists():
        packages = [f"{_CONTAINERD}/{program}@v{CONTAINERD}" for program in _CONTAINERD_PROGRAMS]
        with _create_atomically(folder) as unfinished:
            command = ["install", "-v", "-trimpath", "-ldflags=-s -w", *packages]
            environment = {**_environment(), "GOBIN": str(unfinished)}
            _run(f"building containerd {CONTAINERD} ({_COLD_CONTAINERD})", command, environment)
    return folder


def build_kueue() -> Path:
    """Return Kueue's controller manager, unmodified, built if needed. Raises BuildError when a Go command fails."""
    modules = SOURCES / _KUEUE_MODULES
    key = _key([_go_version(), modules.read_text(), modules.with_suffix(".sum").read_text()])
    program = cache() / f"kueue-{KUEUE}-{key}" / "manager"
    if not program.exists():
        common = ["-trimpath", "-mod=readonly", f"-modfile={_KUEUE_MODULES}", "-ldflags=-s -w"]
        with _create_atomically(program.parent) as folder:
            command = ["build", "-v", *common, "-o", str(folder / program.name), f"{_KUEUE}/cmd/kueue"]
            _run(f"building Kueue {KUEUE} ({_COLD_KUEUE})", command, _environment())
    return program


def kueue_manifests() -> Path:
    """Return the folder of Kueue's module from which its manifests are built. Raises CalledProcessError."""
    return _download(f"{_KUEUE}@v{KUEUE}") / "config" / "default"


def build_example_driver() -> Path:
    """Return Kubernetes' example of a DRA driver, unmodified, built if needed.

    It is built in its own module's folder, with that module's own versions of its libraries. Raises BuildError when a
    Go command fails, and CalledProcessError.
    """
    program = cache() / f"dra-example-driver-{EXAMPLE_DRIVER}-{_key([_go_version()])}" / "plugin"
    if not program.exists():
        sources = _download(f"{_EXAMPLE_DRIVER}@v{EXAMPLE_DRIVER}")
        with _create_atomically(program.parent) as folder:
            common = ["-C", str(sources), "-v", "-trimpath", "-mod=readonly", "-ldflags=-s -w"]
            command = ["build", *common, "-o", str(folder / program.name), "./cmd/dra-example-kubeletplugin"]
            _run(f"building dra-example-driver {EXAMPLE_DRIVER} ({_COLD_EXAMPLE_DRIVER})", command, _environment())
    return program


def build_test_driver() -> Path:
    """Return the DRA driver of the newest release's own end-to-end tests, unmodified, built if needed.

    It imports a module more than the programs of a cluster, for which Go asks the checksum database. Raises BuildError
    when a Go command fails.
    """
    modules = SOURCES / NEWEST.module_file
    key = _key([_go_version(), modules.read_text(), modules.with_suffix(".sum").read_text()])
    program = cache() / f"dra-test-driver-{NEWEST.release}-{key}" / "test-driver"
    if not program.exists():
        with _create_atomically(program.parent) as folder:
            for file in (modules, modules.with_suffix(".sum")):
                shutil.copy(file, folder)
            common = ["-v", "-trimpath", "-mod=mod", f"-modfile={folder / modules.name}", "-ldflags=-s -w"]
            command = ["build", *common, "-o", str(folder / program.name), _TEST_DRIVER]
            _run(f"building the test driver of {NEWEST.release} ({_COLD_PART})", command, _environment())
    return program


def build_nvidia_driver() -> Path:
    """Return the kubelet plugin of NVIDIA's DRA driver, unmodified, built if needed; it loads NVML by cgo.

    Raises BuildError when a Go command fails.
    """
    modules = SOURCES / _NVIDIA_DRIVER_MODULES
    key = _key([_go_version(), modules.read_text(), modules.with_suffix(".sum").read_text()])
    program = cache() / f"dra-driver-nvidia-gpu-{NVIDIA_DRIVER}-{key}" / "gpu-kubelet-plugin"
    if not program.exists():
        common = ["-trimpath", "-mod=readonly", f"-modfile={_NVIDIA_DRIVER_MODULES}", "-ldflags=-s -w"]
        with _create_atomically(program.parent) as folder:
            command = ["build", "-v", *common, "-o", str(folder / program.name), f"{_NVIDIA_DRIVER}/cmd/{program.name}"]
            subject = f"building NVIDIA's DRA driver {NVIDIA_DRIVER} ({_COLD_NVIDIA_DRIVER})"
            _run(subject, command, {**_environment(), "CGO_ENABLED": "1"})
    return program


def nvidia_driver_chart() -> Path:
    """Return the folder of the Helm chart in the module of NVIDIA's DRA driver. Raises CalledProcessError."""
    return _download(f"{_NVIDIA_DRIVER}@v{NVIDIA_DRIVER}") / "deployments/helm/dra-driver-nvidia-gpu"


def build_helm() -> Path:
    """Return Helm, unmodified, built if needed. Raises BuildError when a Go command fails."""
    modules = [_HELM_SOURCES / name for name in ("go.mod", "go.sum")]
    program = cache() / f"helm-{_key([_go_version(), *(file.read_text() for file in modules)])}" / "helm"
    if not program.exists():
        with _create_atomically(program.parent) as folder:
            common = ["-C", str(_HELM_SOURCES), "-v", "-trimpath", "-mod=readonly", "-ldflags=-s -w"]
            _run(
                f"building Helm ({_COLD_HELM})",
                ["build", *common, "-o", str(folder / program.name), _HELM],
                _environment(),
            )
    return program


def _download(module: str) -> Path:
    """Return the folder of a module's sources. Raises CalledProcessError."""
    command = ["go", "mod", "download", "-json", module]
    said = subprocess.run(command, cwd=SOURCES, env=_environment(), capture_output=True, text=True, check=True).stdout
    return Path(json.loads(said)["Dir"])


def _linker_flags(version: KubernetesVersion) -> str:
    """Return the linker flags with the version, on which the API server's feature gates depend."""
    stamp = {
        "gitVersion": f"v{version.release}",
        "gitMajor": version.minor.partition(".")[0],
        "gitMinor": version.minor.partition(".")[2],
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    return "-s -w " + " ".join(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in stamp.items())


def _environment() -> Mapping[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"}


def _go_version() -> str:
    return subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()


def _key(texts: Sequence[str]) -> str:
    """Return a hash of twelve hex digits, enough for the few builds of a cache."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


@contextmanager
def _create_atomically(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to ``folder`` once it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as unfinished:
        new = Path(unfinished) / "new"
        new.mkdir()
        yield new
        new.rename(folder)


def _run(subject: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one Go command, and report its progress in packages or modules."""
    print(f"{subject} …", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(
        ["go", *arguments], cwd=SOURCES, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    said = list(_report_output(process, subject, began))
    if process.wait() != 0:
        raise BuildError(f"{subject} failed:\n" + "\n".join(said[-_TAIL:]))
    print(f"{subject}: done in {time.monotonic() - began:.0f} s", flush=True)


def _report_output(process: subprocess.Popen[str], subject: str, began: float) -> Iterator[str]:
    assert process.stderr is not None
    say_s, end = (1.0, "\r") if sys.stdout.isatty() else (_SAY_S, "\n")
    last = began
    with process.stderr as lines:
        for number, line in enumerate(lines, 1):
            yield line.rstrip()
            now = time.monotonic()
            if now - last >= say_s:
                print(f"{subject}: {now - began:.0f} s, {number} packages", end=end, flush=True)
                last = now
