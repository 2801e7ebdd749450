"""The release that tests run on, from environment variables."""

import os

from tools.realcluster.versions import NEWEST, KubernetesVersion, find


def chosen_version() -> KubernetesVersion:
    """Return the release of ``KERF_E2E_VERSION``, by default the newest. Raises UnknownVersionError."""
    return find(os.environ.get("KERF_E2E_VERSION", NEWEST.minor))


def chosen_classic_version() -> KubernetesVersion:
    """Return the release of ``KERF_E2E_CLASSIC``, by default 1.30. Raises UnknownVersionError."""
    return find(os.environ.get("KERF_E2E_CLASSIC", "1.30"))
