"""Devices that nodes find by discovery: from their objects to containers, by configuration and by device."""

from typing import Any, Final

import pytest

from kerf_dra.api.kerf.discovery_objects import device_name
from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.container_log import ContainerReport
from tests.e2e.namespace import GONE_S, Namespace
from tests.e2e.test_examples import read
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, StatusError
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "a30-24gb"}], options={})
PLUGIN_ARGUMENTS = ("--backend=discovered", "--instance=one")
"""The instance is a part of the names of sockets: a pod's UID would make this driver's too long in a test's folder."""
KERF: Final = "kerf.dev/v1alpha1"
CONFIGURATION: Final = "cameras"
IDS: Final = ("rtsp://10.0.0.7", "rtsp://10.0.0.8")
NAMES: Final = tuple(device_name(CONFIGURATION, one, node=None) for one in IDS)
ANY: Final = f"{CONFIGURATION}.shared.kerf.dev"
UNIQUE: Final = {"distinctAttribute": "shared.kerf.dev/uuid"}


@pytest.fixture(autouse=True)
async def devices(api: Api, namespace: Namespace) -> None:
    """Two devices of capacity 2, which this node sees."""
    found = ", ".join(f"{{id: '{id_}', shared: true, properties: {{URL: '{id_}'}}}}" for id_ in IDS)
    spec = {
        "discoveryHandler": {"name": "static", "details": f"devices: [{found}]"},
        "capacity": 2,
        "brokerProperties": {"QUALITY": "high"},
        "extendedResourceDomain": "akri.sh",
    }
    await api.apply(_document("DiscoveryConfiguration", CONFIGURATION, **spec))

    async def are_published() -> bool:
        slices = await api.list(pods.RESOURCE, "ResourceSlice")
        classes = {one["metadata"]["name"] for one in await api.list(pods.RESOURCE, "DeviceClass")}
        pools = {one["spec"]["pool"]["name"] for one in slices if one["spec"]["driver"] == "shared.kerf.dev"}
        return pools == {*NAMES} and classes >= {ANY, *(f"{name}.shared.kerf.dev" for name in NAMES)}

    await eventually("both devices are published", are_published)


def url_of(container: ContainerReport) -> str:
    """The property URL of its only device, which has the device's digest behind its name."""
    [url] = [value for name, value in container.environment.items() if name.startswith("URL_")]
    return url


def _document(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": KERF, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def test_ak_05_ak_26_a_container_has_the_variables_of_any_device_and_of_this_one(namespace: Namespace) -> None:
    await namespace.template("any", pods.exactly("camera", ANY))
    await namespace.template("this", pods.exactly("camera", f"{NAMES[1]}.shared.kerf.dev"))
    await namespace.create_pods("any", "any")
    await namespace.create_pods("this", "this")
    first, second = (await namespace.wait_running("any")).main, (await namespace.wait_running("this")).main
    assert url_of(first) in IDS
    assert url_of(second) == IDS[1]
    assert "URL" not in second.environment
    assert second.environment["QUALITY"] == "high"


async def test_ak_04_ak_05_pods_with_limits_have_any_device_or_this_one(namespace: Namespace) -> None:
    await namespace.apply(pods.pod("any", limits={"akri.sh/cameras": "1"}))
    await namespace.apply(pods.pod("this", limits={f"akri.sh/{NAMES[1]}": "1"}))
    assert url_of((await namespace.wait_running("any")).main) in IDS
    assert url_of((await namespace.wait_running("this")).main) == IDS[1]


async def test_ak_06_ak_09_claims_and_limits_take_from_the_same_capacity(namespace: Namespace) -> None:
    await namespace.template("any", pods.exactly("camera", ANY))
    await namespace.template("this", pods.exactly("camera", f"{NAMES[0]}.shared.kerf.dev"))
    await namespace.create_pods("this", "this-0", "this-1")
    for name in ("this-0", "this-1"):
        await namespace.wait_running(name)
    await namespace.apply(pods.pod("limits", limits={f"akri.sh/{NAMES[0]}": "1"}))
    await namespace.wait_event("limits", "FailedScheduling")
    await namespace.create_pods("any", "any-0", "any-1")
    for name in ("any-0", "any-1"):
        assert url_of((await namespace.wait_running(name)).main) == IDS[1]
    await namespace.create_pods("any", "any-2")
    await namespace.wait_event("any-2", "FailedScheduling")
    await namespace.delete_pod("limits")
    await namespace.delete_pod("this-0")
    assert url_of((await namespace.wait_running("any-2")).main) == IDS[0]


async def test_ak_14_both_containers_of_a_pod_with_limits_have_a_device(namespace: Namespace) -> None:
    await namespace.apply(pods.pod("two", containers=("left", "right"), limits={"akri.sh/cameras": "1"}))
    told = (await namespace.wait_running("two")).containers
    assert {url_of(told[name]) for name in ("left", "right")} <= {*IDS}
    [claim] = await namespace.claims()
    assert {result["request"] for result in claim["status"]["allocation"]["devices"]["results"]} == {
        "container-0-request-0",
        "container-1-request-0",
    }


async def test_ak_16_a_user_whose_pod_was_deleted_while_the_plugin_was_down_is_free_once_it_is_back(
    api: Api, namespace: Namespace, kerf: Kerf
) -> None:
    await namespace.template("this", pods.exactly("camera", f"{NAMES[0]}.shared.kerf.dev"))
    await namespace.create_pods("this", "this-0", "this-1")
    for name in ("this-0", "this-1"):
        await namespace.wait_running(name)
    await kerf.crash_plugin(NODE)
    await api.delete("v1", "Pod", "this-0", namespace.name)
    await namespace.create_pods("this", "this-2")
    await namespace.wait_event("this-2", "FailedScheduling")
    await kerf.start_plugin(NODE)
    assert url_of((await namespace.wait_running("this-2")).main) == IDS[0]


async def test_ak_07_a_claim_has_different_devices_where_it_says_so(namespace: Namespace) -> None:
    requests = [pods.exactly(name, ANY) for name in ("left", "right")]
    await namespace.template("pair", *requests, constraints=[UNIQUE])
    await namespace.create_pods("pair", "p")
    told = (await namespace.wait_running("p")).main
    assert {result["device"] for result in await namespace.allocation_results("p")} == {*NAMES}
    assert {told.environment[f"URL_{name.removeprefix('cameras-').upper()}"] for name in NAMES} == {*IDS}


async def test_ak_07_ak_08_several_devices_without_that_are_refused_unless_they_need_not_differ(
    api: Api, namespace: Namespace
) -> None:
    requests = [pods.exactly(name, ANY) for name in ("left", "right")]

    async def is_refused() -> bool:  # a policy is in force some time after it was written
        try:
            await namespace.template("refused", *requests)
        except StatusError as error:
            return "several devices of cameras.shared.kerf.dev must be different" in str(error)
        return False

    await eventually("the template is refused", is_refused)
    await namespace.apply(pods.pod("several", limits={"akri.sh/cameras": "2"}))
    await namespace.wait_event("several", "FailedScheduling", "must be different")
    await namespace.delete_pod("several")
    await namespace.apply(pods.pod("two", containers=("left", "right"), limits={"akri.sh/cameras": "1"}))
    await namespace.wait_running("two")
    await namespace.delete_pod("two")
    held = await api.get(KERF, "DiscoveryConfiguration", CONFIGURATION)
    await api.apply(_document("DiscoveryConfiguration", CONFIGURATION, **held["spec"], uniqueDevices=False))

    async def is_accepted() -> bool:
        try:
            await namespace.template("accepted", *requests)
        except StatusError:
            return False
        return True

    await eventually("the template is accepted", is_accepted)
    await namespace.create_pods("accepted", "p")
    await namespace.wait_running("p")
    assert len({result["device"] for result in await namespace.allocation_results("p")}) == 1


async def test_the_example_of_two_cameras_runs_five_replicas(api: Api, namespace: Namespace) -> None:
    for document in read("discovered-cameras"):
        await (api if document["kind"] == "DiscoveryConfiguration" else namespace).apply(document)

    async def count_running() -> int:
        return sum(one["status"].get("phase") == "Running" for one in await api.list("v1", "Pod", namespace.name))

    async def all_run() -> bool:
        return await count_running() == 5

    async def has_no_pods() -> bool:
        return not await api.list("v1", "Pod", namespace.name)

    await eventually("all five replicas run", all_run, but=count_running)
    await api.delete("apps/v1", "Deployment", "viewer", namespace.name)
    await eventually("the replicas are gone", has_no_pods, within_s=GONE_S)
