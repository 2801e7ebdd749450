"""Which cluster tests are to run on, as the environment says."""

import os

from tests.realcluster.versions import NEWEST, KubernetesVersion, find


def chosen_version() -> KubernetesVersion:
    """``KERF_E2E_VERSION=1.34 pytest …`` judges by another release than the newest. Raises UnknownVersionError."""
    return find(os.environ.get("KERF_E2E_VERSION", NEWEST.minor))


def chosen_classic() -> KubernetesVersion:
    """``KERF_E2E_CLASSIC=1.31`` judges by another release in which drivers allocate. Raises UnknownVersionError."""
    return find(os.environ.get("KERF_E2E_CLASSIC", "1.30"))
