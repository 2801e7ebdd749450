"""The example manifests: each file is complete, and gets the devices that its comment says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.api.kerf.decoder import decode_device_config, decode_resource_class
from kerf_dra.api.model.devices import Device
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.controller.device_types import known_device_types
from kerf_dra.driver.controller.structured.class_compiler import CompiledClass, compile_class
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.geometry import Card
from tests.fakes.published_slices import fpgas, gpus, slices

EXAMPLES: Final = Path(__file__).parents[3] / "deploy" / "examples"
FAMILIES: Final = {family.name: family for family in BUILT_IN}
APART: Final = frozenset({"classic", "quota"})
"""Folders whose files belong together, or are for other releases, with tests of their own."""
FILES: Final = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.parent.name not in APART)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def example(name: str) -> list[dict[str, Any]]:
    return documents(EXAMPLES / name / f"{name}.yaml")


def of_kind(kind: str, found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


def claim_specs(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    templates = [one["spec"]["spec"] for one in of_kind("ResourceClaimTemplate", found).values()]
    return templates + [one["spec"] for one in of_kind("ResourceClaim", found).values()]


def pod_specs(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The specs of pods, and of the pods that Deployments, StatefulSets and Jobs make."""
    yield from (one["spec"] for one in of_kind("Pod", found).values())
    for kind in ("Deployment", "Job", "StatefulSet"):
        yield from (one["spec"]["template"]["spec"] for one in of_kind(kind, found).values())


def list_offered_resources(found: list[dict[str, Any]]) -> set[str]:
    """The extended resources that an example offers itself, by classes, device plugins and discovery."""
    classes = [one["spec"] for one in of_kind("ResourceClass", found).values()]
    by_name = {spec["extendedResourceName"] for spec in classes if "extendedResourceName" in spec}
    by_plugin = {spec["devicePlugin"]["resource"] for spec in classes if "devicePlugin" in spec}
    discovered = of_kind("DiscoveryConfiguration", found).items()
    return by_name | by_plugin | {f"{one['spec']['extendedResourceDomain']}/{name}" for name, one in discovered}


def first_match(document: dict[str, Any], cards: list[Card]) -> Device | None:
    """What a claim for the class gets on an empty node: the first device that matches, in publish order."""
    matches = compile_selector(compiled(document).expression).matches
    devices = ((one.spec.driver, device) for one in slices("n1", cards) for device in one.spec.devices)
    return next((device for driver, device in devices if matches(driver, device)), None)


def compiled(document: dict[str, Any]) -> CompiledClass:
    decoded = decode_resource_class(document)
    return compile_class(decoded, families=FAMILIES, nodes=(), device_types=known_device_types())


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_an_example_stands_alone(path: Path) -> None:
    found = documents(path)
    classes, templates = of_kind("ResourceClass", found), of_kind("ResourceClaimTemplate", found)
    claims = of_kind("ResourceClaim", found)
    for document in classes.values():
        compiled(document)
    for spec in claim_specs(found):
        for request in spec["devices"]["requests"]:
            assert request["exactly"]["deviceClassName"] in classes
        for index, config in enumerate(spec["devices"].get("config", [])):
            opaque = config["opaque"]
            [family] = [one for one in BUILT_IN if one.driver == opaque["driver"]]
            decode_device_config(opaque["parameters"], f"config[{index}]", family.configurations)
    specs = list(pod_specs(found))
    assert specs or path.stem == "resource-classes"
    for spec in specs:
        entries = spec.get("resourceClaims", [])
        named = {claim["name"] for claim in entries}
        for claim in entries:
            assert claim.get("resourceClaimTemplateName") in templates or claim.get("resourceClaimName") in claims
        for container in spec["containers"]:
            resources = container["resources"]
            assert {claim["name"] for claim in resources.get("claims", [])} <= named
            assert resources.get("limits", {}).keys() <= list_offered_resources(found)
            assert resources.keys() & {"claims", "limits"}, "what else would it show?"


def test_every_example_is_in_the_list_of_examples() -> None:
    listed = (EXAMPLES.parents[1] / "docs" / "examples" / "README.md").read_text()
    for folder in EXAMPLES.iterdir():
        assert f"(../../deploy/examples/{folder.name}/README.md)" in listed


def test_no_two_examples_make_the_same_object() -> None:
    names = [(one["kind"], one["metadata"]["name"]) for path in FILES for one in documents(path)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("model", "profiles"),
    [
        ("h100-80gb-sxm", {"1g.20gb"}),
        ("a30-24gb", {"4g.24gb"}),
        ("rtx-pro-6000", {"1g.24gb", "1g.24gb-me"}),
        ("a100-40gb", {"3g.20gb"}),
        ("h200-141gb", {"1g.35gb"}),
    ],
)
def test_by_size_gets_the_smallest_partition_of_18_gib(model: str, profiles: set[str]) -> None:
    [document] = of_kind("ResourceClass", example("gpu-by-size")).values()
    device = first_match(document, gpus(model))
    assert device is not None
    assert device.attributes["profile"].string in profiles


@pytest.mark.parametrize("model", ["h100-80gb-sxm", "a30-24gb"])
def test_or_whole_comes_to_whole_cards_after_every_partition_of_every_card(model: str) -> None:
    document = of_kind("ResourceClass", example("resource-classes"))["gpu-20gi-or-whole"]
    matches = compile_selector(compiled(document).expression).matches
    devices = [(one.spec.driver, device) for one in slices("n1", gpus(model, 2)) for device in one.spec.devices]
    cuts = [device.attributes["cut"].string for driver, device in devices if matches(driver, device)]
    assert cuts == ["partition"] * (len(cuts) - 2) + ["whole"] * 2
    assert len(cuts) > 2


@pytest.mark.parametrize("model", [model.id for model in gpu_models()])
@pytest.mark.parametrize("name", ["gpu-small", "gpu-whole", "shared-claim"])
def test_every_gpu_can_serve_what_asks_for_no_size(name: str, model: str) -> None:
    classes = of_kind("ResourceClass", example(name)).values()
    assert classes
    for document in classes:
        assert first_match(document, gpus(model)) is not None


@pytest.mark.parametrize("model", ["h100-80gb-sxm", "a30-24gb", "rtx-pro-6000", "thor-igpu"])
def test_resize_goes_from_small_to_large(model: str) -> None:
    classes = of_kind("ResourceClass", example("gpu-resize"))
    small = first_match(classes["gpu-one-slice"], gpus(model))
    large = first_match(classes["gpu-three-slices"], gpus(model))
    assert small is not None
    assert large is not None
    assert small.capacity["computeSlices"].value < large.capacity["computeSlices"].value


@pytest.mark.parametrize("shell", [shell.name for shell in shells()])
def test_every_shell_can_serve_the_function(shell: str) -> None:
    [document] = of_kind("ResourceClass", example("fpga-function")).values()
    device = first_match(document, fpgas(shell))
    assert device is not None
    assert device.attributes["function"].string == "aes-gcm"


def test_two_slots_are_two_slots_without_a_function_of_their_own() -> None:
    [document] = of_kind("ResourceClass", example("fpga-two-slots")).values()
    device = first_match(document, fpgas("quad"))
    assert device is not None
    assert (int(device.capacity["slots"].value), device.attributes["function"].string) == (2, "")
