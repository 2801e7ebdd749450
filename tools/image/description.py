"""What is in the image and how it starts. Pure values."""

import platform
from collections.abc import Mapping
from typing import Any, Final

NAME: Final = "localhost/kerf:0.1.0"
"""What chart and manifests call the image: no registry has it. With localhost, runtimes that import it ask none."""
SUITE: Final = "bookworm"
"""The release of Debian, whose Python is the oldest that Kerf runs with: one lock file is tested with it."""
PYTHON: Final = "python3.11"
DEBIAN_PACKAGES: Final = ("libpython3.11-stdlib", "libstdc++6", "python3.11-minimal")
"""What Kerf and the packages of the lock file need of Debian; their dependencies come with them. libstdc++6 is for
cel-expr-python."""
NOT_INSTALLED: Final = ("debconf", "dpkg")
"""Dependencies of Debian's packages that only their installation needs. There is none: they are unpacked."""
LOCKS: Final = ("deploy/image/kerf.lock", "deploy/image/nvidia.lock", "deploy/image/fpga.lock")
"""The packages, with hashes: those of Kerf, that of the backend for NVIDIA cards, and those for signatures."""
LEFT_OUT: Final = frozenset({"kubernetes", "pydantic"})
"""Dependencies of Kerf that the image lacks: credential plugins of a kubeconfig and the demo's manifests need them, and
programs in a cluster have neither. With what comes with them they are more than half of all packages' size."""
SITE_PACKAGES: Final = "usr/lib/python3/dist-packages"
"""Where Debian's Python looks for packages; a further family of devices is installed there, too."""
IMITATIONS: Final = (
    "kerf_dra/driver/demo",
    "kerf_dra/driver/deploy",
    "kerf_dra/driver/kubeletplugin/backends/simulated",
    "kerf_dra/driver/local",
    "kerf_dra/driver/testing",
)
"""The folders of Kerf that imitate a cluster or hardware, and the demo's manifests: no program on a node needs them.
They are in an image that is built ``--with-simulated``."""
PROGRAM: Final = "usr/bin/kerf"
CDI_HOOK: Final = "usr/bin/nvidia-cdi-hook"
"""Copied to the host by the plugin (docs/nvidia-containers.md)."""
SBOM: Final = "usr/share/kerf/sbom.json"
"""The bill of materials (CycloneDX), with Debian's packages."""
USER: Final = 65532
"""The controller's user: the number that images without a shell commonly have for no particular user. The kubelet's
folders belong to root, so the plugin's pod says ``runAsUser: 0``."""
ENTRY_POINT: Final = (f"/{PROGRAM}",)
SANITY: Final = "localhost/kerf-sanity:0.1.0"
"""The name of the image whose program is ``kerf sanity``."""
PROGRAM_SOURCE: Final = "deploy/image/kerf"
ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names of OCI and Debian by the kernel's."""


def configuration(*, is_sanity: bool = False) -> Mapping[str, Any]:
    """Return the image's configuration for containers (``config`` of OCI's image configuration).

    ``is_sanity``: its program is ``kerf sanity``, and its user root, to whom the sockets of drivers belong.
    """
    user = 0 if is_sanity else USER
    return {
        "Entrypoint": [*ENTRY_POINT, *(["sanity"] if is_sanity else ())],
        "User": f"{user}:{user}",
        "WorkingDir": "/",
        "Env": ["PATH=/usr/bin"],
        "Labels": {
            "org.opencontainers.image.title": "kerf",
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }


def architecture() -> str:
    """Return OCI's name of this machine's architecture. Raises KeyError where Kerf's image cannot be made."""
    return ARCHITECTURES[platform.machine()]


def lower_layer() -> Mapping[str, Any]:
    """Return what the lower layer depends on beside the lock files."""
    return {
        "suite": SUITE,
        "architecture": architecture(),
        "packages": DEBIAN_PACKAGES,
        "not installed": NOT_INSTALLED,
        "files": base_files(),
        "site packages": SITE_PACKAGES,
    }


def base_files() -> Mapping[str, str]:
    """Return small files that Debian's packages make when they are installed, by path."""
    return {
        "etc/passwd": f"root:x:0:0:root:/:/nonexistent\nkerf:x:{USER}:{USER}:kerf:/:/nonexistent\n",
        "etc/group": f"root:x:0:\nkerf:x:{USER}:\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        # Scanners find the advisories for Debian's packages by it.
        "etc/os-release": f'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME={SUITE}\nPRETTY_NAME="Kerf on Debian 12"\n',
    }
