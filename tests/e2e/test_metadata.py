"""Files in which containers read what they got (KEP-5304)."""

import json
from typing import Any

from tests.e2e import pods
from tests.e2e.container_log import Told
from tests.e2e.namespace import Space
from tests.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
FOLDER = "/var/run/kubernetes.io/dra-device-attributes"


def newest(told: Told, path: str) -> dict[str, Any]:
    """The first document of a file: the same follows in older versions."""
    document: dict[str, Any]
    document, _ = json.JSONDecoder().raw_decode(told.files[f"{FOLDER}/{path}/kerf.dev-metadata.json"])
    return document


async def test_a_container_reads_what_it_got_where_the_class_says_so(space: Space) -> None:
    described = await space.resource_class("described", device="gpu", profile="1g.10gb", deviceMetadata=True)
    await space.template("described", pods.exactly("gpu", described))
    await space.pods_of("described", "p", containers=("first", "second"))
    running = await space.running("p")
    (result,) = await space.allocated("p")
    for told in running.containers.values():
        document = newest(told, "resourceclaimtemplates/devices/gpu")
        assert (document["apiVersion"], document["kind"]) == ("metadata.resource.k8s.io/v1beta1", "DeviceMetadata")
        ((device,),) = [request["devices"] for request in document["requests"]]
        assert {key: device[key] for key in ("driver", "pool", "name")} == {
            "driver": "kerf.dev",
            "pool": result["pool"],
            "name": result["device"],
        }
        assert device["attributes"]["profile"] == {"string": "1g.10gb"}


async def test_of_a_claim_with_a_name_a_container_reads_under_that_name_only_its_own_requests(space: Space) -> None:
    described = await space.resource_class("described", device="gpu", profile="1g.10gb", deviceMetadata=True)
    await space.claim("pair", pods.exactly("a", described), pods.exactly("b", described))
    pod = pods.pod("p", {"gpus": pods.by_name("pair")}, containers=("a", "b"))
    for container in pod["spec"]["containers"]:
        container["resources"] = {"claims": [{"name": "gpus", "request": container["name"]}]}
    await space.apply(pod)
    running = await space.running("p")
    devices = {result["request"]: result["device"] for result in await space.allocated("p")}
    for name, told in running.containers.items():
        assert len(told.files) == 1
        (request,) = newest(told, f"resourceclaims/pair/{name}")["requests"]
        assert [device["name"] for device in request["devices"]] == [devices[name]]


async def test_without_being_asked_it_tells_nothing(space: Space) -> None:
    silent = await space.resource_class("silent", device="gpu", profile="1g.10gb")
    await space.template("silent", pods.exactly("gpu", silent))
    await space.pods_of("silent", "p")
    assert (await space.running("p")).main.files == {}
