"""The fixtures of ``tests/e2e/classic``, with Kerf as pods in place of processes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.e2e.classic.conftest import (
    EXAMPLES,
    _all_parts_run,
    _why_is_known,
    dialect,
    namespace,
    version,
)
from tests.e2e.classic.dialects import Dialect, convert_examples
from tests.e2e.conftest import why_audit
from tests.installation.kerf_pods import KerfPods
from tests.installation.release import Release, bare_cluster, import_kerf_image
from tools.helm.chart import Helm
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import DEFAULT_HARDWARE
from tools.realcluster.versions import KubernetesVersion

__all__ = ["_all_parts_run", "_why_is_known", "dialect", "namespace", "version", "why_audit"]

DELAYS = {"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 0.5}}


@pytest.fixture(scope="package")
async def cluster(
    version: KubernetesVersion, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    async with bare_cluster(version, request, "classic-pods") as cluster:
        await import_kerf_image(cluster, tmp_path_factory.mktemp("image"))
        yield cluster


@pytest.fixture(scope="package")
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    async with Api(cluster.kubeconfig) as api:
        yield api


@pytest.fixture(scope="package")
async def kerf(
    helm: Helm, cluster: Cluster, api: Api, dialect: Dialect, tmp_path_factory: pytest.TempPathFactory
) -> KerfPods:
    """Kerf by the chart's values for such releases, and the classes of the examples."""
    values = {"classic": {"enabled": True}, "plugin": {"surge": False}}
    release = Release(helm, cluster, api, tmp_path_factory.mktemp("values"))
    kerf = KerfPods(release, replace(DEFAULT_HARDWARE, options=DELAYS), values)
    await kerf.install()
    for document in convert_examples(yaml.safe_load_all(Path(EXAMPLES / "classes.yaml").read_text()), dialect):
        await api.apply(document)
    return kerf
