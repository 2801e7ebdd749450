"""The cluster becomes a newer Kubernetes and the older one again while 100 claims are held, beside the example driver.

The example of Kubernetes' own driver (``dra-example-driver``) holds as many claims on the same node: what the change of
the release itself costs pods, it costs the example's, too.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.held_claims import HeldState, list_slices, read_state, restart_ended
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.builds import build_example_driver
from tools.realcluster.cluster import Cluster
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import Hardware, Kerf
from tools.realcluster.versions import NEWEST, KubernetesVersion, find

OLDER: Final = find("1.36")
pytestmark = pytest.mark.skipif(chosen_version() is not OLDER, reason=f"it begins with Kubernetes {OLDER.minor}")

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 15}], options={"pace": 0})
PODS: Final = 10
CLAIMS: Final = 10
"""Claims of each pod."""
OURS: Final = [f"kerf{number}" for number in range(PODS)]
THEIRS: Final = [f"example{number}" for number in range(PODS)]
EXAMPLE: Final = "gpu.example.com"
"""The name of the example driver, and of its process."""
CHANGED_S: Final = 180.0
"""The time limit for slices after a change, which includes the start of a kubelet and maybe of the plugin."""


class ExampleDriver:
    """The example driver on the node, as an administrator would run it."""

    def __init__(self, cluster: Cluster) -> None:
        paths = cluster.node_paths(NODE)
        options = {
            "--node-name": NODE,
            "--driver-name": EXAMPLE,
            "--kubeconfig": cluster.kubeconfig,
            "--cdi-root": paths.cdi,
            "--num-devices": PODS * CLAIMS,
            "--kubelet-registrar-directory-path": paths.kubelet / "plugins_registry",
            "--kubelet-plugins-directory-path": paths.kubelet / "plugins",
        }
        self._cdi = paths.cdi
        self._processes = cluster.processes
        self._command = [str(build_example_driver()), *(f"{option}={value}" for option, value in options.items())]

    def ensure_running(self) -> None:
        """Start it if it does not run."""
        if not self._processes.is_running(EXAMPLE):
            self._processes.start(EXAMPLE, self._command)

    async def remove(self) -> None:
        """End it, and remove the CDI file that it makes for all claims and never removes."""
        await self._processes.stop(EXAMPLE)
        for file in self._cdi.glob(f"*{EXAMPLE}*"):
            file.unlink()


async def hold_claims(namespace: Namespace) -> None:
    """Create the pods of both drivers, with claims that the kubelet need not wait for: none is made of a template."""
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    selector = {"cel": {"expression": f"device.driver == '{EXAMPLE}'"}}
    theirs = {"apiVersion": pods.RESOURCE, "kind": "DeviceClass", "metadata": {"name": EXAMPLE}}
    await namespace.api.apply({**theirs, "spec": {"selectors": [selector]}})
    for device_class, names in ((small, OURS), (EXAMPLE, THEIRS)):
        for name in names:
            claims = [f"{name}-{number}" for number in range(CLAIMS)]
            for claim in claims:
                await namespace.claim(claim, pods.exactly("gpu", device_class))
            await namespace.apply(pods.pod(name, {claim: pods.by_name(claim) for claim in claims}))


def list_restarted(before: HeldState, after: HeldState, names: Sequence[str]) -> list[str]:
    """Return the pods of which a container is another one, or has been started again."""
    return [name for name in names if after.starts[name] != before.starts[name]]


async def change_release(
    version: KubernetesVersion, cluster: Cluster, kerf: Kerf, namespace: Namespace, example: ExampleDriver
) -> None:
    """Change the release of all parts, a kubelet never newer than the API server (version skew policy)."""
    slices, is_newer = await list_slices(namespace), version is NEWEST
    cluster.choose_release(version)
    if is_newer:
        await cluster.restart_control_plane()
    await cluster.restart_kubelet(NODE)
    if not is_newer:
        await cluster.restart_control_plane()

    async def are_back() -> bool:
        """Whether the kubelet has drivers that have published again what it has deleted at its start."""
        example.ensure_running()
        await restart_ended(cluster, kerf, NODE)
        now = await list_slices(namespace)
        return now.isdisjoint(slices) and await are_published(namespace)

    await eventually("both drivers have published their devices", are_back, within_s=CHANGED_S)
    await kerf.wait_plugin_ready(NODE)

    async def is_changed() -> bool:
        node = await namespace.api.get("v1", "Node", NODE)
        return str(node["status"]["nodeInfo"]["kubeletVersion"]) == f"v{version.release}"

    await eventually(f"the node says that its kubelet is {version.release}", is_changed)


async def are_published(namespace: Namespace) -> bool:
    found = await namespace.api.list(pods.RESOURCE, "ResourceSlice")
    has_both = {one["spec"]["driver"] for one in found} >= {"gpu.kerf.dev", EXAMPLE}
    return has_both and bool(await namespace.complete_devices())


async def test_held_claims_lose_nothing_and_restart_no_more_than_those_of_the_example_driver(
    namespace: Namespace, cluster: Cluster, kerf: Kerf
) -> None:
    example = ExampleDriver(cluster)
    example.ensure_running()
    await eventually("both drivers publish devices", lambda: are_published(namespace), within_s=CHANGED_S)
    await hold_claims(namespace)
    before = await read_state(cluster, namespace, [*OURS, *THEIRS])
    assert (before.records, len(before.uuids)) == (PODS * CLAIMS, PODS * CLAIMS)
    for version in (NEWEST, OLDER):
        await change_release(version, cluster, kerf, namespace, example)
        after = await read_state(cluster, namespace, [*OURS, *THEIRS])
        ours, theirs = (list_restarted(before, after, names) for names in (OURS, THEIRS))
        print(f"{version.release}: restarted {ours} of Kerf, {theirs} of the example driver")
        assert len(ours) <= len(theirs)
        assert (after.partitions, after.uuids, after.records) == (before.partitions, before.uuids, before.records)
        assert before.cdi.items() <= after.cdi.items()
        assert {name: one["allocation"] for name, one in after.claims.items()} == {
            name: one["allocation"] for name, one in before.claims.items()
        }
    for claim in await namespace.claims():
        await namespace.api.delete(pods.RESOURCE, "ResourceClaim", claim["metadata"]["name"], namespace.name)
    for name in [*OURS, *THEIRS]:
        await namespace.api.delete("v1", "Pod", name, namespace.name)
    for name in [*OURS, *THEIRS]:
        await namespace.wait_gone("v1", "Pod", name)
    await example.remove()
