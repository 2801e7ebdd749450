"""Everything that Kerf can generate is accepted, and nothing of it is dropped: slices, classes, definitions.

Objects are created with ``dryRun``: the server checks them, and answers with what it would have stored.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.device_types import known_device_types
from kerf_dra.driver.controller.structured.class_compiler import compile_class
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kube.slice_plan import CreateSlice, SliceContext, plan_pool
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.backends.simulated.config import cards_of, read_config
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tools.realcluster.api import Api, Document
from tools.realcluster.kerf import DEPLOY, manifests

NODE: Final = "bare1"
CARDS: Final = 8
"""As many as a large node has."""
CLASSES: Final = sorted((Path(__file__).parents[1] / "controller" / "structured" / "classes").glob("*.yaml"))
EXAMPLES: Final = sorted(
    path for path in (DEPLOY / "examples").glob("*/*.yaml") if path.parent.name not in ("classic", "quota")
)
"""All but those of other releases, and of Kueue."""
FAMILIES: Final = {family.name: family for family in BUILT_IN}


def of_kind(tmp_path: Path, cards: Mapping[str, object]) -> tuple[Card, ...]:
    file = tmp_path / "hardware.yaml"
    file.write_text(yaml.safe_dump({"state": "hardware", "cards": [cards]}))
    return cards_of(read_config(file))


def slices(cards: tuple[Card, ...], *, rich: bool) -> Iterator[Document]:
    """Return what a node with these cards publishes; rich: all of it lost, in shares, with monitors, loaded early."""
    board = DeviceHealthTracker(driver=GPU.driver, now=lambda: 0.0)
    if rich:
        for card in cards:
            board.update(HealthChange(card_uuid=card.uuid, partition=None, state=HealthState.LOST, reason="gone"))
    profiles = {profile.name for model in gpu_models() for profile in model.profiles}
    everything = OptionalDevices(shareable=frozenset([None, *profiles]), monitors=frozenset({"gpu", "fpga"}))
    place = PublishTarget(
        driver=GPU.driver,
        node=NODE,
        layout=SliceLayout.SPLIT,
        vocabularies={family.name: family.vocabulary for family in BUILT_IN},
        optional_devices=everything if rich else OptionalDevices(),
        early_load_s=0 if rich else None,
    )
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="a-node")
    context = SliceContext(driver=GPU.driver, node_name=NODE, owner=owner, generations={}, accepted={})
    for pool in build_device_set(place, {"simulated": cards}, (), board, DeviceSet()).pools:
        for write in plan_pool(pool, (), context):
            assert isinstance(write, CreateSlice)
            yield KINDS.resource_slices.encode(write.value)


def without_times(spec: Document) -> Document:
    """The server says when a taint was added."""
    for device in spec.get("devices", ()):
        for taint in device.get("taints", ()):
            taint.pop("timeAdded", None)
    return spec


async def accepted(server: Api, document: Document) -> Document:
    """Return the object as the server would store it."""
    return await server.create(document, dryRun="All")


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("model", [model.id for model in gpu_models()])
async def test_slices_of_every_gpu_model(server: Api, tmp_path: Path, model: str, rich: bool) -> None:
    cards = of_kind(tmp_path, {"kind": "gpu", "model": model, "count": CARDS})
    for document in slices(cards, rich=rich):
        kept = await accepted(server, document)
        assert without_times(kept["spec"]) == document["spec"]


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("shell", [shell.name for shell in shells()])
async def test_slices_of_every_fpga_shell(server: Api, tmp_path: Path, shell: str, rich: bool) -> None:
    cards = of_kind(tmp_path, {"kind": "fpga", "shell": shell, "count": CARDS})
    for document in slices(cards, rich=rich):
        kept = await accepted(server, document)
        assert without_times(kept["spec"]) == document["spec"]


def offers() -> Iterator[tuple[str, Document]]:
    """Return a ResourceClass for everything that the cards have."""
    profiles = {profile.name: model.id for model in gpu_models() for profile in model.profiles}
    yield from ((f"profile {name}", {"device": "gpu", "profile": name}) for name in sorted(profiles))
    yield from ((f"model {model.id}", {"device": "gpu", "models": [model.id]}) for model in gpu_models())
    yield "every model", {"device": "gpu", "models": [model.id for model in gpu_models()], "cut": "Whole"}
    functions = {function.name for shell in shells() for function in shell.functions}
    yield from ((f"function {name}", {"device": "fpga", "function": name}) for name in sorted(functions))


def device_class(spec: Document) -> Document:
    metadata = {"name": "offer", "uid": "11111111-1111-1111-1111-111111111111"}
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": metadata, "spec": spec}
    compiled = compile_class(
        decode_resource_class(document),
        families=FAMILIES,
        nodes=(),
        device_types=known_device_types(),
    )
    return KINDS.device_classes.encode(compiled.device_class)


@pytest.mark.parametrize("spec", [pytest.param(spec, id=name) for name, spec in offers()])
async def test_a_class_for_everything_there_is(server: Api, spec: Document) -> None:
    document = device_class(spec)
    kept = await accepted(server, document)
    assert kept["spec"] == document["spec"]


@pytest.mark.parametrize("path", CLASSES, ids=[path.stem for path in CLASSES])
async def test_classes_of_the_controllers_own_tests(server: Api, path: Path) -> None:
    _, document = yaml.safe_load_all(path.read_text())
    kept = await accepted(server, document)
    assert kept["spec"] == document["spec"]


def definitions() -> list[Any]:
    return [pytest.param(one, id=one["metadata"]["name"]) for one in manifests(DEPLOY / "crds")]


@pytest.mark.parametrize("document", definitions())
async def test_definitions_of_our_own_kinds(server: Api, document: Document) -> None:
    kept = await server.apply(document, dryRun="All")
    assert [version["schema"] for version in kept["spec"]["versions"]] == [
        version["schema"] for version in document["spec"]["versions"]
    ]
    name = document["metadata"]["name"]
    found = await server.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_the_examples(server: Api, space: str, path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document and document["kind"] != "Namespace":
            document["metadata"].setdefault("namespace", space)
            await server.apply(document, dryRun="All")
