"""A claim shows in its status what it got, before its container starts and until its pod ends (KEP-4817)."""

import subprocess

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tests.realcluster.api import Document
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import PLUGIN, Kerf

GPU, FPGA = "gpu.kerf.dev", "fpga.kerf.dev"
RBAC = "rbac.authorization.k8s.io/v1"


async def entries(namespace: Namespace) -> dict[str, Document]:
    """Return the claims' entries in ``status.devices`` by driver."""
    claims = await namespace.claims()
    return {entry["driver"]: entry for claim in claims for entry in claim.get("status", {}).get("devices", ())}


async def small_pod(namespace: Namespace, name: str) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", name)


async def test_uuid_and_profile_are_public_before_the_container_starts(namespace: Namespace, cluster: Cluster) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    aes = await namespace.resource_class("aes", device="fpga", function="aes-gcm")
    await namespace.claim("got", pods.exactly("gpu", small), pods.exactly("fpga", aes))
    pod = pods.pod("p", {"devices": pods.by_name("got")})
    pod["spec"]["containers"][0]["image"] = "nobody.example/has-no-such-image:1"  # so its container cannot start
    await namespace.apply(pod)

    async def is_held_up() -> bool:
        (container,) = (await namespace.pod("p"))["status"].get("containerStatuses", ({},))
        reason: object = container.get("state", {}).get("waiting", {}).get("reason")
        return reason == "ErrImageNeverPull"

    await eventually("the container cannot start", is_held_up, but=lambda: namespace.describe_pod("p"))
    command = cluster.kubectl("get", "resourceclaim", "got", "-n", namespace.name, "-o", "yaml")
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221
    found = await entries(namespace)
    gpu, fpga = found[GPU]["data"], found[FPGA]["data"]
    assert namespace.node.holds(gpu["uuid"])
    assert f"uuid: {gpu['uuid']}" in printed
    assert "profile: 1g.10gb" in printed
    assert (gpu["apiVersion"], gpu["kind"], gpu["profile"]) == ("kerf.dev/v1alpha1", "DeviceStatus", "1g.10gb")
    assert gpu["cdiDevices"][0] in namespace.node.cdi_devices()
    assert (fpga["function"], fpga["deviceNodes"]) == ("aes-gcm", ["/dev/dfl-port.0"])
    assert all(
        [(one["type"], one["status"]) for one in entry["conditions"]] == [("Ready", "True")] for entry in found.values()
    )


@BOTH_BACKENDS
async def test_the_container_sees_what_the_claim_shows_and_it_is_gone_after_the_pod(namespace: Namespace) -> None:
    await small_pod(namespace, "p")
    told = (await namespace.wait_running("p")).main
    shown = (await entries(namespace))[GPU]["data"]
    assert list(told.kerf_devices.values()) == [shown["uuid"]]
    assert set(shown["deviceNodes"]) == told.card_nodes
    # A claim with a name outlives its pod, and another pod's reservation keeps its allocation.
    await namespace.claim("kept", pods.exactly("gpu", f"{namespace.name}-small"))
    await namespace.apply(pods.pod("q", {"devices": pods.by_name("kept")}))
    await namespace.wait_running("q")
    assert len({claim["metadata"]["name"] for claim in await namespace.claims() if claim["status"].get("devices")}) == 2
    for name in ("p", "q"):
        await namespace.delete_pod(name)

    async def is_gone() -> bool:
        return not await entries(namespace)

    await eventually("no claim shows a device", is_gone, but=namespace.claims)


@pytest.mark.parametrize("resource", ["resourceclaims/status", "resourceclaims/driver"])
async def test_without_the_permission_pods_run_and_with_it_their_claims_show_what_they_have(
    resource: str, namespace: Namespace, kerf: Kerf
) -> None:
    role = await namespace.api.get(RBAC, "ClusterRole", PLUGIN)
    await namespace.api.patch(
        RBAC, "ClusterRole", PLUGIN, {"rules": [rule for rule in role["rules"] if resource not in rule["resources"]]}
    )
    await kerf.restart_plugin(NODE)
    try:
        await small_pod(namespace, "p")
        await namespace.wait_running("p")
        assert await entries(namespace) == {}
        assert await namespace.node.metric("kerf_claim_status_writes_total") == 1, "forbidden"
    finally:
        await namespace.api.patch(RBAC, "ClusterRole", PLUGIN, {"rules": role["rules"]})
    await kerf.restart_plugin(NODE)

    async def is_shown() -> bool:
        return GPU in await entries(namespace)

    await eventually("the claim shows what it has", is_shown)
