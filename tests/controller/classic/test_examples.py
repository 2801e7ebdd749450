"""The classes of ``deploy/examples/classic`` give what their comments say."""

from pathlib import Path

import msgspec
import pytest
import yaml

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.controller.classic.allocator import ClaimAllocation
from kerf_dra.driver.controller.classic.claims import plan_claim
from tests.controller.classic.cluster_builder import ClusterBuilder
from tests.controller.classic.hardware import fpga, gpu

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples" / "classic" / "classes.yaml"
DOCUMENTS = list(yaml.safe_load_all(EXAMPLES.read_text()))
CLASSES = [document["metadata"]["name"] for document in DOCUMENTS if document["kind"] == "ResourceClass"]
WISHES: dict[str, JsonObject] = {"gpu-by-size": {"minimum": {"memory": "18Gi"}}, "fpga": {"function": "aes-gcm"}}
"""What a claim has to say, where the class leaves it open."""
GIVEN = {
    "gpu-small": (["gpu-0-1g-10gb-at-6"], 1),
    "gpu-by-size": (["gpu-0-1g-20gb-at-6"], 1),
    "gpu-h100-whole": (["gpu-0"], 1),
    "gpu-shared": (["gpu-0-3g-40gb-at-4"], 32),
    "gpu-monitor": (["gpu-0", "gpu-1"], 1),
    "fpga": (["fpga-0-aes-gcm-at-0"], 1),
}
"""The devices that the first claim of a class gets, and how many pods may use it."""


def grant(class_name: str) -> ClaimAllocation:
    """Of the first claim of a class, on a node with two GPUs and an FPGA card."""
    builder = ClusterBuilder()
    builder.node("n1", gpu("n1", 0), gpu("n1", 1), fpga("n1", 0, "quad"))
    for document in DOCUMENTS:
        if document["kind"] == "ResourceClass":
            builder.stores.classes.put(KINDS.classes.decode(msgspec.json.encode(document)))
        else:
            builder.parameters(document["kind"], document["metadata"]["name"], document["spec"])
    kind = "FpgaClaimParameters" if class_name == "fpga" else "GpuClaimParameters"
    builder.claim_parameters("wish", WISHES.get(class_name, {}), kind=kind)
    named = "wish" if class_name in WISHES else None
    value = builder.claim(class_name=class_name, parameters=named, parameters_kind=kind, immediate=True)
    found = plan_claim(value, builder.view)
    assert found.allocation is not None, found.warnings
    return found.allocation


@pytest.mark.parametrize("class_name", CLASSES)
def test_every_example_class_gives_what_it_says(class_name: str) -> None:
    # by profile, by size, per product, shared, for monitoring
    allocation = grant(class_name).allocation
    given = [result.device for result in allocation.devices.results]
    assert (given, allocation.max_pods) == GIVEN[class_name]
