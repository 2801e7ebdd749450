"""``kerf drain`` and ``kerf undrain`` on an API server: what they say before, what they write, and how they wait."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import click
import pytest
import yaml
from msgspec.structs import replace

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, Pod
from kerf_dra.api.core.workloads import REPLICA_SETS
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject, maintenance_name
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute, ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.cluster.drain import render_drain, render_end
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import CardMaintenanceState, ClusterState
from kerf_dra.driver.diagnostics.drain.report import DrainedHolder, DrainReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import InvalidError
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    owned,
    placed_pod,
    pod,
    slices,
    state,
)
from tests.reclaim.cases import tainted_slices
from tools.generate import crds

UUID = "GPU-node-1-0"
NAME = "node-1.gpu-node-1-0"


@dataclass
class Site:
    """An API server with a node of two cards; its first card is held by three pods, one of which is bare."""

    client: Client
    kubeconfig: Path
    capsys: pytest.CaptureFixture[str]

    async def run(self, command: str, *arguments: str) -> tuple[int, str, str]:
        def call() -> tuple[int, str, str]:
            code = main([command, *arguments, f"--kubeconfig={self.kubeconfig}"])
            captured = self.capsys.readouterr()
            return code, captured.out, captured.err

        return await anyio.to_thread.run_sync(call)

    async def list_maintenances(self) -> dict[str, CardMaintenanceObject]:
        return {one.metadata.name: one for one in (await self.client.list(CARD_MAINTENANCES)).items}

    async def report(self, name: str, phase: str, message: str) -> None:
        """Write a status, as the reclaimer does."""
        patch = {"status": {"phase": phase, "message": message}}
        await self.client.patch(CARD_MAINTENANCES, name, patch, type=PatchType.MERGE, subresource="status")


def build_state() -> ClusterState:
    wanted = (claim("web", "2g-20gb"), claim("db", "1g-10gb"), claim("big", "3g-40gb"))
    now = allocate_claims(gpu_cluster(cards=2), *wanted)
    pods = [placed_pod(each.metadata.name, each.metadata.name) for each in wanted]
    pods = [pods[0], pods[1], owned(pods[2], "ReplicaSet", "big-6d")]
    return replace(now, pods=(owned(pods[0], "ReplicaSet", "web-7d9"), *pods[1:]))


@asynccontextmanager
async def site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: ApiServerSettings | None = None
) -> AsyncIterator[Site]:
    server = ApiServer(settings=settings or ApiServerSettings())
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="tests") as admin:
            for crd in crds.documents():
                await admin.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
            with anyio.fail_after(60):
                yield Site(admin, kubeconfig, capsys)
        group.cancel_scope.cancel()


async def publish(place: Site, state: ClusterState) -> None:
    """Put the objects of ``state`` on the server, without the UIDs that the server gives itself."""
    for each in state.nodes:
        await place.client.create(NODES, each)
    for published in state.slices:
        await place.client.create(KINDS.resource_slices, published)
    for class_ in state.classes:
        await place.client.create(KINDS.device_classes, class_)
    uids: dict[str, str] = {}
    for pod_ in state.pods:
        made = await place.client.create(PODS, await with_real_owners(place, pod_))
        uids[made.metadata.name] = made.metadata.uid
    for held in state.claims:
        name = held.metadata.name
        owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=uids[name])
        metadata = replace(held.metadata, uid="", owner_references=(owner,))
        bare = replace(held, metadata=metadata, status=ResourceClaimStatus())
        stored = await place.client.create(KINDS.resource_claims, bare)
        users = tuple(replace(user, uid=uids[user.name]) for user in held.status.reserved_for)
        status = replace(held.status, reserved_for=users)
        await place.client.update(KINDS.resource_claims, replace(stored, status=status), subresource="status")


async def with_real_owners(place: Site, one: Pod) -> Pod:
    """Return a pod whose owners are on the server: it would be garbage without them."""
    owners = []
    for owner in one.metadata.owner_references:
        template: JsonObject = {"metadata": {"labels": {"app": owner.name}}, "spec": {"containers": []}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": owner.name}}, "template": template}
        document = {"metadata": {"name": owner.name, "namespace": "default"}, "spec": spec}
        made = await place.client.apply(REPLICA_SETS, document, field_manager="tests")
        owners.append(replace(owner, uid=made.metadata.uid))
    containers = tuple(replace(each, image="none") for each in one.spec.containers)
    metadata = replace(one.metadata, uid="", owner_references=tuple(owners))
    return replace(one, metadata=metadata, spec=replace(one.spec, containers=containers))


async def test_a_dry_run_says_who_holds_the_card_and_where_each_fits_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        code, out, err = await place.run("drain", "node-1/gpu-0", "--dry-run")
        bare_code, bare_out, _ = await place.run("drain", f"node-1/{UUID}", "--dry-run", "--bare", "-o", "json")
        assert await place.list_maintenances() == {}
    assert (code, err) == (1, ""), "the pod db is not evicted"
    lines = out.splitlines()
    assert lines[:2] == ["card gpu-0 of node-1: 2 pods to evict", "UUID GPU-node-1-0, PCI address 0000:00:00.0"]
    assert [line.split()[0] for line in lines if line.startswith("default/")] == ["default/big", "default/web"]
    assert all(" node-1: gpu-1-" in line for line in lines if line.startswith("default/"))
    assert "not evicted: no controller creates it again" in " ".join(out.split())
    assert out.endswith("nothing is changed: this was a dry run\n")
    report = json.loads(bare_out)
    assert (bare_code, len(report["evict"]), report["others"], report["maintenance"]) == (0, 3, [], "")
    assert {each["pod"]: each["owner"] for each in report["evict"]} == {
        "default/big": "ReplicaSet big-6d",
        "default/db": "",
        "default/web": "ReplicaSet web-7d9",
    }


async def test_drain_creates_one_maintenance_and_a_second_time_says_since_when_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        first = await place.run("drain", "node-1/gpu-0", "--reason=fan is loud", "--bare", "--deadline=60")
        held = await place.list_maintenances()
        second = await place.run("drain", "node-1/0000:00:00.0", "--reason=other")
        assert await place.list_maintenances() == held
    assert first[0] == second[0] == 0
    assert held[NAME].spec == {
        "nodeName": "node-1",
        "card": UUID,
        "reason": "fan is loud",
        "then": "None",
        "evictBarePods": True,
        "deadlineSeconds": 60,
    }
    assert held[NAME].metadata.labels == {NODE_LABEL: "node-1"}
    assert f"CardMaintenance {NAME} is created" in first[1]
    told = " ".join(second[1].split())
    assert f"it is in maintenance since {held[NAME].metadata.creation_timestamp}: fan is loud" in told


@pytest.mark.parametrize(
    ("phase", "code", "said"),
    [
        ("Free", 0, "Free: nothing holds gpu-0"),
        ("Stuck", 1, "Stuck: nothing holds gpu-0"),
        ("Evicting", 1, "not free after 1.5 s, Evicting: nothing holds gpu-0"),
        ("", 1, "not free after 1.5 s, and without a status: `kerf controller --reclaim` does not run"),
    ],
)
async def test_wait_ends_with_the_phase_or_with_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], phase: str, code: int, said: str
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        found: dict[str, Any] = {}

        async def drain() -> None:
            found["text"] = await place.run("drain", "node-1/gpu-0", "--wait", "--timeout=1.5")

        async with anyio.create_task_group() as group:
            group.start_soon(drain)
            while NAME not in await place.list_maintenances():  # noqa: ASYNC110  (another thread's doing)
                await anyio.sleep(0.01)
            if phase:
                await place.report(NAME, phase, "nothing holds gpu-0")
    assert found["text"][0] == code
    assert said in " ".join(found["text"][1].split())
    assert (f"{phase}, held by 0" if phase else "has written no status yet") in found["text"][2]


@pytest.mark.parametrize(
    ("then", "spec"),
    [
        ("reset", {"then": "Reset"}),
        ("mig-on", {"then": "MigOn"}),
        ("mig-off", {"then": "MigOff"}),
        ("hook=swap-fan", {"then": "Hook", "hook": "swap-fan"}),
        ("none", {"then": "None"}),
    ],
)
async def test_then_says_what_is_done_with_the_free_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], then: str, spec: JsonObject
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        code, out, _ = await place.run("drain", "node-1/gpu-0", f"--then={then}")
        held = await place.list_maintenances()
        again = await place.run("drain", "node-1/gpu-0", f"--then={then}")
        other = await place.run("drain", "node-1/gpu-0", "--then=hook=other")
        await place.report(NAME, "Returned", "it was reset")
        returned = await place.run("drain", "node-1/gpu-0")
    assert (code, again[0]) == (0, 0)
    assert held[NAME].spec == {"nodeName": "node-1", "card": UUID, **spec}
    assert ("verifies the card and gives it back" in " ".join(out.split())) is (then != "none")
    assert other[0] == returned[0] == 2
    assert f"is in maintenance by CardMaintenance {NAME}, then: {spec['then']}: end it first" in other[2]
    assert f"CardMaintenance {NAME} has returned the card: end it (kerf undrain)" in returned[2]


@pytest.mark.parametrize("then", ["reboot", "hook", "reset=now", ""])
async def test_what_else_is_to_be_done_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], then: str
) -> None:
    async with site(tmp_path, capsys) as place:
        code, _, err = await place.run("drain", "node-1/gpu-0", f"--then={then}")
    assert code == 2
    assert f"{then!r} is none of none, reset, mig-on, mig-off, hook=NAME" in err


@pytest.mark.parametrize("name", ["", "../../bin/sh", "Swap", "a" * 64])
async def test_no_path_is_given_to_a_node_as_a_hook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        code, _, err = await place.run("drain", "node-1/gpu-0", f"--then=hook={name}")
        assert not await place.list_maintenances()
    assert (code, f"{name!r} is no name of a hook" in " ".join(err.split())) == (2, True)


@pytest.mark.parametrize(
    ("phases", "code", "said"),
    [
        (("Acting", "Returned"), 0, "Returned: it is Returned"),
        (("Acting", "Stuck"), 1, "Stuck: it is Stuck"),
        (("Free",), 1, "not back after 1.5 s, Free: it is Free"),
    ],
)
async def test_with_then_wait_ends_when_the_card_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], phases: tuple[str, ...], code: int, said: str
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        found: dict[str, Any] = {}

        async def drain() -> None:
            found["text"] = await place.run("drain", "node-1/gpu-0", "--wait", "--timeout=1.5", "--then=reset")

        async with anyio.create_task_group() as group:
            group.start_soon(drain)
            while NAME not in await place.list_maintenances():  # noqa: ASYNC110  (another thread's doing)
                await anyio.sleep(0.01)
            for phase in phases:
                await place.report(NAME, phase, f"it is {phase}")
    assert found["text"][0] == code
    assert said in found["text"][1]


async def test_undrain_deletes_the_maintenances_of_the_card_and_of_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        for card in ("gpu-0", "gpu-1"):
            await place.run("drain", f"node-1/{card}")
        by_hand = CardMaintenanceObject(
            metadata=ObjectMeta(name="by-hand"), spec={"nodeName": "node-1", "card": "0000:00:00.0"}
        )
        gone = replace(by_hand, metadata=ObjectMeta(name="gone"), spec={"nodeName": "node-9", "card": "GPU-9"})
        for each in (by_hand, gone):
            await place.client.create(CARD_MAINTENANCES, each)
        code, out, _ = await place.run("undrain", "node-1/gpu-0")
        assert set(await place.list_maintenances()) == {"node-1.gpu-node-1-1", "gone"}
        of_lost_node = await place.run("undrain", "node-9/gpu-9")
        again = await place.run("undrain", "node-1/gpu-0")
    assert (code, " ".join(out.split())) == (0, deletion_text("gpu-0", "node-1", f"by-hand, {NAME}").strip())
    assert of_lost_node == (0, deletion_text("gpu-9", "node-9", "gone"), "")
    assert again == (
        2,
        "",
        "kerf: no CardMaintenance is for card gpu-0 of node node-1; there are those of node-1/GPU-node-1-1\n",
    )


async def test_undrain_of_a_card_that_is_in_no_maintenance_names_some_of_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        for number in range(1, 8):
            spec: JsonObject = {"nodeName": f"node-{number}", "card": "GPU-9"}
            await place.client.create(
                CARD_MAINTENANCES, CardMaintenanceObject(metadata=ObjectMeta(name=f"m{number}"), spec=spec)
            )
        answer = await place.run("undrain", "node-1/gpu-0")
    assert (answer[0], answer[1]) == (2, "")
    assert answer[2].endswith("; there are those of node-1/GPU-9, node-2/GPU-9, node-3/GPU-9 and 4 more\n")


def deletion_text(card: str, node: str, names: str) -> str:
    return f"card {card} of {node} gets claims again; deleted: CardMaintenance {names}\n"


LONG_NODE = "gpu-worker-0123.eu-central-1.example.com"
LONG_UUID = "GPU-c4d7d4da-4800-532c-bd3e-7aa4609687e1"
"""As long as NVIDIA's are."""


def holder(pod: str, **facts: Any) -> DrainedHolder:
    """A pod that is evicted, and fits nowhere."""
    known: dict[str, Any] = {
        "claims": (f"{pod}-devices-x7f2k",),
        "devices": ("gpu-1-2g-20gb-at-4",),
        "owner": "",
        "verdict": "Evict",
        "message": "",
        "new_node": "",
        "new_devices": (),
        "is_undecided": False,
        "disruption_budgets": (),
    }
    return DrainedHolder(pod=pod, **{**known, **facts})


WEB = holder(
    "inference/llama-server-6f2772938f-6042b",
    owner="ReplicaSet llama-server-6f2772938f",
    new_node=LONG_NODE,
    new_devices=("gpu-3-2g-20gb-at-2",),
    disruption_budgets=("inference/llama-server",),
)
TRAINING = holder(
    "research/training-0",
    owner="StatefulSet training",
    devices=("gpu-1-3g-40gb-at-0", "gpu-1-2g-20gb-at-4", "gpu-1-1g-10gb-at-6", "gpu-1-1g-10gb-at-7"),
    is_undecided=True,
)
STAYING = holder("research/notebook", verdict="Bare", message="not evicted: no controller creates it again (--bare)")


def long_report(*evict: DrainedHolder, others: tuple[DrainedHolder, ...] = (), phase: str = "") -> DrainReport:
    return DrainReport(
        node=LONG_NODE,
        card="gpu-1",
        uuid=LONG_UUID,
        pci_address="0000:3b:00.0",
        evict=evict,
        others=others,
        budgets_known=False,
        unjudged="CPU and memory are not judged, because the requests of pods on the nodes could not be read",
        maintenance=maintenance_name(LONG_NODE, LONG_UUID),
        phase=phase,
        message=f"hook update-vbios: ended with exit code 1: {'no firmware for this board ' * 5}",
    )


def long_maintenance(**spec: str) -> CardMaintenanceObject:
    spec = {"nodeName": LONG_NODE, "card": LONG_UUID, "reason": "fan is loud, ticket 4711 of the data center", **spec}
    metadata = ObjectMeta(name=maintenance_name(LONG_NODE, LONG_UUID), creation_timestamp="2026-11-27T10:00:00Z")
    return CardMaintenanceObject(metadata=metadata, spec=spec)


@pytest.mark.parametrize(
    ("report", "held", "was_there"),
    [
        (long_report(), None, False),
        (long_report(WEB), None, False),
        (long_report(WEB, TRAINING, others=(STAYING,)), long_maintenance(), False),
        (long_report(WEB, TRAINING), long_maintenance(then="Hook", hook="update-vbios"), False),
        (long_report(WEB, phase="Evicting"), long_maintenance(), True),
        (long_report(TRAINING), long_maintenance(), True),
    ],
)
def test_no_line_is_longer_than_a_terminal_of_80_columns_and_no_name_is_broken(
    report: DrainReport, held: CardMaintenanceObject | None, was_there: bool
) -> None:
    lines = [click.unstyle(one) for one in render_drain(report, held, 80, was_there=was_there, dry_run=held is None)]
    assert [line for line in lines if len(line) > 80] == []
    words = set(re.split(r"[\s(),]+|: ", " ".join(lines)))
    names = {LONG_NODE, LONG_UUID, "gpu-1", "0000:3b:00.0"}
    for each in (*report.evict, *report.others):
        names |= {each.pod, *each.devices, *each.new_devices}
    assert names <= words
    assert [line for line in lines if line.startswith("POD")] == [], "a table of such names is wider"


def test_facts_of_a_pod_are_below_its_name_where_a_table_is_too_wide_and_beside_it_elsewhere() -> None:
    report, held = long_report(WEB, TRAINING), long_maintenance()
    narrow = [*render_drain(report, held, 80, was_there=False, dry_run=False)]
    at = narrow.index(WEB.pod)
    assert narrow[at : at + 9] == [
        "inference/llama-server-6f2772938f-6042b",
        "  OWNER    ReplicaSet llama-server-6f2772938f",
        "  HOLDS    gpu-1-2g-20gb-at-4",
        "  ROOM AT  gpu-worker-0123.eu-central-1.example.com: gpu-3-2g-20gb-at-2",
        "research/training-0",
        "  OWNER    StatefulSet training",
        "  HOLDS    gpu-1-3g-40gb-at-0, gpu-1-2g-20gb-at-4, gpu-1-1g-10gb-at-6,",
        "           gpu-1-1g-10gb-at-7",
        "  ROOM AT  unknown (the search took too long)",
    ]
    wide = [*render_drain(report, held, 250, was_there=False, dry_run=False)]
    [header] = [line for line in wide if line.startswith("POD")]
    assert header.split() == ["POD", "OWNER", "HOLDS", "ROOM", "AT"]
    assert [line for line in wide if line.startswith((WEB.pod, TRAINING.pod))] == wide[wide.index(header) + 1 :][:2]


@pytest.mark.parametrize("phase", ["Stuck", "Evicting", ""])
@pytest.mark.parametrize("held", [long_maintenance(then="Reset"), None])
def test_the_end_of_a_wait_fits_into_80_columns(held: CardMaintenanceObject | None, phase: str) -> None:
    lines = list(render_end(long_report(phase=phase), held, 600))
    assert lines
    assert [line for line in lines if len(line) > 80] == []


async def test_on_a_node_with_a_long_name_all_that_is_printed_fits_into_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uuid = "GPU-" + "0" * 36
    name = maintenance_name(LONG_NODE, uuid)
    async with site(tmp_path, capsys) as place:
        published = [renamed(each, uuid) for each in slices(LONG_NODE)]
        await publish(place, state(node(LONG_NODE), published=published))
        found: dict[str, Any] = {}

        async def drain() -> None:
            found["text"] = await place.run("drain", f"{LONG_NODE}/gpu-0", "--wait", "--timeout=60", "--then=reset")

        async with anyio.create_task_group() as group:
            group.start_soon(drain)
            while name not in await place.list_maintenances():  # noqa: ASYNC110  (another thread's doing)
                await anyio.sleep(0.01)
            await place.report(name, "Returned", "it was reset " * 10)
        undrained = await place.run("undrain", f"{LONG_NODE}/{uuid}")
    code, out, err = found["text"]
    assert (code, undrained[0]) == (0, 0)
    lines = [*out.splitlines(), *err.splitlines(), *undrained[1].splitlines()]
    assert [line for line in lines if len(line) > 80] == []
    assert "its CardMaintenance is created" in out
    assert "Returned: it was reset" in err
    assert " ".join(undrained[1].split()) == (
        f"card {uuid} of {LONG_NODE} gets claims again; deleted: its CardMaintenance"
    )


def renamed(published: ResourceSlice, uuid: str) -> ResourceSlice:
    """Return a slice of one card with this UUID."""
    devices = tuple(
        replace(each, attributes={**each.attributes, "uuid": Attribute.of(uuid)}) for each in published.spec.devices
    )
    return replace(published, spec=replace(published.spec, devices=devices))


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("node-1", "names no card: write NODE/CARD"),
        ("/gpu-0", "names no card: write NODE/CARD"),
        ("node-1/", "names no card: write NODE/CARD"),
        ("node-7/gpu-0", "no node is called 'node-7'; there is node-1"),
        (
            "node-1/gpu-7",
            "node node-1 publishes no card 'gpu-7'; it publishes gpu-0 (GPU-node-1-0), gpu-1 (GPU-node-1-1)",
        ),
    ],
)
async def test_what_names_no_card_is_refused_with_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argument: str, said: str
) -> None:
    async with site(tmp_path, capsys) as place:
        await publish(place, build_state())
        code, _, err = await place.run("drain", argument)
        assert await place.list_maintenances() == {}
    assert code == 2
    assert said in err


async def test_where_the_controller_allocates_cards_cannot_be_drained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classic = ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",))
    async with site(tmp_path, capsys, classic) as place:
        for command in ("drain", "undrain"):
            code, _, err = await place.run(command, "node-1/gpu-0")
            assert code == 3
            assert "cards can be drained from Kubernetes 1.32 on: this cluster has 1.30" in err


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"card": UUID}, "spec.nodeName"),
        ({"nodeName": "node-1"}, "spec.card"),
        ({"nodeName": "node-1", "card": ""}, "spec.card"),
        ({"nodeName": "node-1", "card": "../x"}, "spec.card"),
        ({"nodeName": "Node 1", "card": UUID}, "spec.nodeName"),
        ({"nodeName": "node-1", "card": UUID, "then": "Reboot"}, "spec.then"),
        ({"nodeName": "node-1", "card": UUID, "then": "Hook"}, "spec"),
        ({"nodeName": "node-1", "card": UUID, "then": "Reset", "hook": "fan"}, "spec"),
        ({"nodeName": "node-1", "card": UUID, "then": "Hook", "hook": "../fan"}, "spec.hook"),
        ({"nodeName": "node-1", "card": UUID, "reason": "two\nlines"}, "spec.reason"),
        ({"nodeName": "node-1", "card": UUID, "reason": "x" * 257}, "spec.reason"),
        ({"nodeName": "node-1", "card": UUID, "deadlineSeconds": 0}, "spec.deadlineSeconds"),
    ],
)
async def test_the_api_server_refuses_what_cannot_be_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], path: str
) -> None:
    async with site(tmp_path, capsys) as place:
        with pytest.raises(InvalidError, match=path):
            await place.client.create(
                CARD_MAINTENANCES, CardMaintenanceObject(metadata=ObjectMeta(name="wrong"), spec=spec)
            )


def test_why_names_the_card_its_reason_and_since_when_it_is_drained() -> None:
    now = gpu_cluster(cards=1)
    held = CardMaintenanceState(name=NAME, node="node-1", card=UUID, reason="fan is loud", since="2026-11-27T10:00:00Z")
    waiting = pod("web", "web")
    now = replace(
        now,
        slices=tuple(tainted_slices("node-1", "gpu-0", value="idle", cards=1)),
        claims=(claim("web", "1g-10gb"),),
        pods=(waiting,),
        card_maintenances=(held, replace(held, name="other", node="node-2")),
    )
    report = explain_pod(ClusterIndex(now), ObjectRef("default", "web"))
    told = [each for each in report.causes if each.code == "card-unavailable"]
    assert [each.message for each in told] == [
        "card gpu-0 of node node-1 is drained since 2026-11-27T10:00:00Z: fan is loud"
    ]
    assert "kerf undrain node-1/gpu-0" in told[0].next_step
    assert told[0].objects == ("node node-1", f"cardmaintenance {NAME}")


def test_why_says_of_a_running_pod_that_its_card_is_drained_and_that_is_no_fault_of_the_pod() -> None:
    now = allocate_claims(gpu_cluster(cards=1), claim("web", "1g-10gb"))
    running = placed_pod("web", "web", phase="Running")
    held = CardMaintenanceState(name=NAME, node="node-1", card=UUID, since="2026-11-27T10:00:00Z")
    now = replace(
        now,
        slices=tuple(tainted_slices("node-1", "gpu-0", value="in-use", cards=1)),
        pods=(running,),
        card_maintenances=(held,),
    )
    report = explain_pod(ClusterIndex(now), ObjectRef("default", "web"))
    [told] = [each for each in report.causes if each.code == "card-unavailable"]
    assert (told.message, told.is_fault) == ("card gpu-0 of node node-1 is drained since 2026-11-27T10:00:00Z", False)
    assert report.verdict == "has-devices"
