"""Device metadata files in containers (KEP-5304)."""

import json
from typing import Any

from tests.e2e import pods
from tests.e2e.container_log import ContainerReport
from tests.e2e.namespace import Namespace
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
FOLDER = "/var/run/kubernetes.io/dra-device-attributes"


def newest(told: ContainerReport, path: str) -> dict[str, Any]:
    """Return the first document of a file; the others have the same content in older versions."""
    document: dict[str, Any]
    document, _ = json.JSONDecoder().raw_decode(told.files[f"{FOLDER}/{path}/gpu.kerf.dev-metadata.json"])
    return document


async def test_a_container_reads_what_it_got_where_the_class_says_so(namespace: Namespace) -> None:
    described = await namespace.resource_class("described", device="gpu", profile="1g.10gb", deviceMetadata=True)
    await namespace.template("described", pods.exactly("gpu", described))
    await namespace.create_pods("described", "p", containers=("first", "second"))
    running = await namespace.wait_running("p")
    (result,) = await namespace.allocation_results("p")
    for told in running.containers.values():
        document = newest(told, "resourceclaimtemplates/devices/gpu")
        assert (document["apiVersion"], document["kind"]) == ("metadata.resource.k8s.io/v1beta1", "DeviceMetadata")
        ((device,),) = [request["devices"] for request in document["requests"]]
        assert {key: device[key] for key in ("driver", "pool", "name")} == {
            "driver": "gpu.kerf.dev",
            "pool": result["pool"],
            "name": result["device"],
        }
        assert device["attributes"]["profile"] == {"string": "1g.10gb"}


async def test_of_a_claim_with_a_name_a_container_reads_under_that_name_only_its_own_requests(
    namespace: Namespace,
) -> None:
    described = await namespace.resource_class("described", device="gpu", profile="1g.10gb", deviceMetadata=True)
    await namespace.claim("pair", pods.exactly("a", described), pods.exactly("b", described))
    pod = pods.pod("p", {"gpus": pods.by_name("pair")}, containers=("a", "b"))
    for container in pod["spec"]["containers"]:
        container["resources"] = {"claims": [{"name": "gpus", "request": container["name"]}]}
    await namespace.apply(pod)
    running = await namespace.wait_running("p")
    devices = {result["request"]: result["device"] for result in await namespace.allocation_results("p")}
    for name, told in running.containers.items():
        assert len(told.files) == 1
        (request,) = newest(told, f"resourceclaims/pair/{name}")["requests"]
        assert [device["name"] for device in request["devices"]] == [devices[name]]


async def test_without_being_asked_it_tells_nothing(namespace: Namespace) -> None:
    silent = await namespace.resource_class("silent", device="gpu", profile="1g.10gb")
    await namespace.template("silent", pods.exactly("gpu", silent))
    await namespace.create_pods("silent", "p")
    assert (await namespace.wait_running("p")).main.files == {}
