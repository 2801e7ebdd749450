"""The examples of ``deploy/examples`` on a real cluster do what their pages say.

``tools/generate/examples.py`` has them placed by the allocator; ``kerf demo`` runs those of single pods.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from tests.e2e import pods
from tests.e2e.namespace import GONE_S, Namespace
from tests.e2e.wait import eventually
from tools.generate.examples import FOLDERS
from tools.realcluster.api import Api, Document
from tools.realcluster.documents import IMAGE
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import DEPLOY, Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}, {"kind": "fpga", "shell": "quad"}], options={})
WORKLOADS: Final = frozenset({"Deployment", "Job", "Pod", "StatefulSet"})

pytestmark = pytest.mark.skipif(
    chosen_version().resource_version != "v1", reason="the examples are written for resource.k8s.io/v1"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is there when an example has started, and its Jobs have finished."""

    ready: int
    """Pods that stay."""
    succeeded: int
    """Pods of Jobs."""
    profiles: tuple[str, ...]
    """The profiles of the partitions on the GPU."""


OUTCOMES: Final[Mapping[str, Outcome]] = {
    "deployment": Outcome(3, 0, ("1g.10gb",) * 3),
    "extended-resource": Outcome(1, 0, ("1g.10gb",)),
    "fpga-function": Outcome(1, 0, ()),
    "fpga-two-slots": Outcome(1, 0, ()),
    "gpu-and-fpga": Outcome(1, 0, ("1g.10gb",)),
    "gpu-by-size": Outcome(1, 0, ("1g.20gb",)),
    "gpu-in-shares": Outcome(2, 0, ()),
    "gpu-resize": Outcome(1, 1, ("3g.40gb",)),
    "gpu-small": Outcome(2, 0, ("1g.10gb",) * 2),
    "gpu-whole": Outcome(1, 0, ()),
    "job": Outcome(0, 4, ()),
    "shared-claim": Outcome(1, 0, ("1g.10gb",)),
    "statefulset": Outcome(2, 0, ("3g.40gb",) * 2),
    "training-and-inference": Outcome(3, 1, ("1g.10gb",) * 3),
}


def read(name: str, *, reports: bool = False) -> list[Document]:
    """The documents of an example, with an image that this cluster has.

    ``reports``: whether its containers report what they see in place of their own commands.
    """
    found = [
        document
        for file in sorted((DEPLOY / "examples" / name).glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    for document in found:
        if document["kind"] in WORKLOADS:
            spec = document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]
            for container in spec["containers"]:
                container |= {"image": IMAGE, "imagePullPolicy": "Never"}
                container |= {"command": ["/bin/sh", "-c", pods.REPORT_COMMAND]} if reports else {}
    return found


@pytest.fixture(params=[folder.name for folder in FOLDERS])
async def example(request: pytest.FixtureRequest, api: Api, namespace: Namespace) -> AsyncIterator[str]:
    """The name of an example that was applied; its workloads and classes are deleted afterwards."""
    documents = read(request.param)
    for document in documents:
        if document["kind"] == "ResourceClass":
            await api.apply(document)
            await wait_compiled(api, document["metadata"]["name"])
    for document in documents:
        if document["kind"] != "ResourceClass":
            await namespace.apply(document)
    yield request.param
    for document in documents:
        if document["kind"] in WORKLOADS:
            await api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"], namespace.name)

    async def has_no_pods() -> bool:
        return not await api.list("v1", "Pod", namespace.name)

    await eventually("the pods of the example are gone", has_no_pods, within_s=GONE_S)
    for document in documents:
        if document["kind"] == "ResourceClass":
            await api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"])


async def wait_compiled(api: Api, name: str) -> None:
    async def has_device_class() -> Document | None:
        return await api.find(pods.RESOURCE, "DeviceClass", name)

    await eventually(f"DeviceClass {name}", has_device_class)


async def test_an_example_does_what_its_page_says(example: str, api: Api, namespace: Namespace) -> None:
    async def outcome() -> Outcome:
        found = await api.list("v1", "Pod", namespace.name)
        ready = [one for one in found if all(each["ready"] for each in one["status"].get("containerStatuses", ()))]
        return Outcome(
            ready=sum(one["status"]["phase"] == "Running" for one in ready),
            succeeded=sum(one["status"]["phase"] == "Succeeded" for one in found),
            profiles=tuple(sorted(profile for _, profile, _ in namespace.node.gpu_partitions)),
        )

    async def is_reached() -> bool:
        return await outcome() == OUTCOMES[example]

    await eventually(f"the outcome of {example}", is_reached, but=outcome)
