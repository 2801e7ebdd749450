"""The releases of container runtimes that read each version of the format.

Source: go.mod of each release. A runtime reads the versions up to the major and minor version of the Go library that
it links.
"""

from collections.abc import Iterator, Mapping

from kerf_dra.cdi.versions import VERSIONS

FIRST_RELEASES: Mapping[str, Mapping[str, str]] = {
    "containerd": {
        "0.5.0": "1.7.0",
        "0.6.0": "1.7.12",
        "0.7.0": "1.7.16",
        "0.8.0": "1.7.27",
        "1.0.0": "2.0.5",
        "1.1.0": "2.2.1",
    },
    "CRI-O": {
        "0.3.0": "1.24",
        "0.5.0": "1.25",
        "0.6.0": "1.28",
        "0.7.0": "1.30",
        "0.8.0": "1.31",
        "1.0.0": "1.33",
        "1.1.0": "1.35",
    },
    "podman": {"0.4.0": "4.1", "0.5.0": "4.3", "0.6.0": "4.7", "0.7.0": "5.1", "0.8.0": "5.2", "1.0.0": "5.5"},
    "Docker Engine": {"0.6.0": "25.0", "0.7.0": "26.1", "0.8.0": "27.4", "1.0.0": "28.1", "1.1.0": "29.2"},
}
"""The first release that reads a version, by runtime and version; a missing version came with the next one."""


def find_first_readers(version: str) -> Iterator[tuple[str, str]]:
    """Yield each runtime with its first release that reads ``version``; runtimes without one are left out."""
    enough = VERSIONS[VERSIONS.index(version) :]
    for runtime, releases in FIRST_RELEASES.items():
        release = next((releases[known] for known in enough if known in releases), None)
        if release is not None:
            yield runtime, release
