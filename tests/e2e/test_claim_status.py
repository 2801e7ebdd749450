"""A claim shows in its status what it got, until its pod ends (KEP-4817)."""

import subprocess

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import NAMESPACE, PLUGIN, Kerf

GPU, FPGA = "gpu.kerf.dev", "fpga.kerf.dev"
RBAC = "rbac.authorization.k8s.io/v1"
CONDITIONS = [("Ready", "True"), ("Simulated", "True")]
"""Of a device that is prepared, on hardware that is not real."""
FORBIDDEN = f'kerf_claim_status_writes_total{{driver="{GPU}",outcome="forbidden"}}'


async def entries(namespace: Namespace) -> dict[str, Document]:
    """Return the claims' entries in ``status.devices`` by driver."""
    claims = await namespace.claims()
    return {entry["driver"]: entry for claim in claims for entry in claim.get("status", {}).get("devices", ())}


async def shown(namespace: Namespace, *drivers: str) -> dict[str, Document]:
    """Return the entries once each driver has one: no prepare waits for its write."""

    async def probe() -> dict[str, Document] | None:
        found = await entries(namespace)
        return found if found.keys() >= set(drivers) else None

    return await eventually(f"claims show devices of {', '.join(drivers)}", probe, but=namespace.claims)


async def wait_rights(namespace: Namespace, resource: str, *, are_given: bool) -> None:
    """Wait until the API server lets the plugin write ``resource``, or not: it learns of a changed role by a watch."""
    verb = "patch" if resource.endswith("/status") else "associated-node:patch"
    kind, _, part = resource.partition("/")
    attributes = {"group": "resource.k8s.io", "resource": kind, "subresource": part, "verb": verb, "name": GPU}
    user = f"system:serviceaccount:{NAMESPACE}:{PLUGIN}"
    spec: Document = {"user": user, "resourceAttributes": attributes}
    review: Document = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}

    async def is_so() -> bool:
        answer = await namespace.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"]) is are_given

    await eventually(f"the plugin may write {resource}: {are_given}", is_so)


async def small_pod(namespace: Namespace, name: str) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", name)


async def test_uuid_and_profile_are_public_though_the_container_cannot_start(
    namespace: Namespace, cluster: Cluster
) -> None:
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
    found = await shown(namespace, GPU, FPGA)
    command = cluster.kubectl("get", "resourceclaim", "got", "-n", namespace.name, "-o", "yaml")
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221
    gpu, fpga = found[GPU]["data"], found[FPGA]["data"]
    assert namespace.node.holds(gpu["uuid"])
    assert f"uuid: {gpu['uuid']}" in printed
    assert "profile: 1g.10gb" in printed
    assert (gpu["apiVersion"], gpu["kind"], gpu["profile"]) == ("kerf.dev/v1alpha1", "DeviceStatus", "1g.10gb")
    assert gpu["cdiDevices"][0] in namespace.node.cdi_devices()
    assert (fpga["function"], fpga["deviceNodes"]) == ("aes-gcm", ["/dev/dfl-port.0"])
    assert all([(one["type"], one["status"]) for one in entry["conditions"]] == CONDITIONS for entry in found.values())


@BOTH_BACKENDS
async def test_the_container_sees_what_the_claim_shows_and_it_is_gone_after_the_pod(namespace: Namespace) -> None:
    await small_pod(namespace, "p")
    told = (await namespace.wait_running("p")).main
    data = (await shown(namespace, GPU))[GPU]["data"]
    assert list(told.kerf_devices.values()) == [data["uuid"]]
    assert set(data["deviceNodes"]) == told.card_nodes
    # A claim with a name outlives its pod, and another pod's reservation keeps its allocation.
    await namespace.claim("kept", pods.exactly("gpu", f"{namespace.name}-small"))
    await namespace.apply(pods.pod("q", {"devices": pods.by_name("kept")}))
    await namespace.wait_running("q")

    async def both_show() -> bool:
        return sum(bool(claim["status"].get("devices")) for claim in await namespace.claims()) == 2

    await eventually("both claims show a device", both_show, but=namespace.claims)
    for name in ("p", "q"):
        await namespace.delete_pod(name)

    async def is_gone() -> bool:
        return not await entries(namespace)

    await eventually("no claim shows a device", is_gone, but=namespace.claims)


async def test_a_claim_shows_what_it_got_whatever_order_the_keys_of_its_parameters_have(namespace: Namespace) -> None:
    """A server-side apply to such a claim is refused: the API server sorts the keys, and takes that for a change."""
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    unsorted = {"sharing": {"strategy": "Exclusive"}, "kind": "GpuConfig", "apiVersion": "kerf.dev/v1alpha1"}
    config = [pods.opaque(unsorted, "gpu")]
    claim = pods.claim("unsorted", pods.devices(pods.exactly("gpu", small), config=config))
    await namespace.api.create({**claim, "metadata": {**claim["metadata"], "namespace": namespace.name}})
    await namespace.apply(pods.pod("p", {"devices": pods.by_name("unsorted")}))
    told = (await namespace.wait_running("p")).main
    data = (await shown(namespace, GPU))[GPU]["data"]
    assert list(told.kerf_devices.values()) == [data["uuid"]]


@pytest.mark.parametrize("resource", ["resourceclaims/status", "resourceclaims/driver"])
async def test_without_the_permission_pods_run_and_with_it_their_claims_show_what_they_have(
    resource: str, namespace: Namespace, kerf: Kerf
) -> None:
    role = await namespace.api.get(RBAC, "ClusterRole", PLUGIN)
    await namespace.api.patch(
        RBAC, "ClusterRole", PLUGIN, {"rules": [rule for rule in role["rules"] if resource not in rule["resources"]]}
    )
    try:
        await wait_rights(namespace, resource, are_given=False)
        await kerf.restart_plugin(NODE)
        await small_pod(namespace, "p")
        await namespace.wait_running("p")

        async def is_forbidden() -> bool:
            return await namespace.node.metric(FORBIDDEN) == 1

        await eventually("the plugin may not write", is_forbidden)
        assert await entries(namespace) == {}
    finally:
        await namespace.api.patch(RBAC, "ClusterRole", PLUGIN, {"rules": role["rules"]})
    await wait_rights(namespace, resource, are_given=True)
    await kerf.restart_plugin(NODE)
    await shown(namespace, GPU)
