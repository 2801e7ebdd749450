"""Diagnostics of a running cluster, as administrators use them; the same answers come from its dump."""

import gzip
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.driver.cli import kerf as command_line
from kerf_dra.driver.cli.cluster.top_state import ApiServerSource, build_reading
from kerf_dra.driver.demo.environment import DemoEnvironment, DemoSettings, open_environment
from kerf_dra.driver.diagnostics.overview.cluster_overview import EVERYTHING
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell

SETTINGS = DemoSettings(
    files=(),
    nodes=2,
    gpu_model=gpu_model("h100-80gb-sxm"),
    gpus=1,
    shell=shell("quad"),
    fpgas=0,
    keep=False,
    verbose=False,
    step_timeout_s=240,
)
Document = dict[str, Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="ka", dir="/tmp") as root:
        yield Path(root)


def resource_class(profile: str) -> Document:
    return {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": profile.replace(".", "-")},
        "spec": {"device": "gpu", "profile": profile},
    }


def claim(name: str, class_: str, *selectors: str, **more: Any) -> Document:
    exactly = {"deviceClassName": class_, "selectors": [{"cel": {"expression": each}} for each in selectors]}
    devices: Document = {"requests": [{"name": "gpu", "exactly": {**exactly, **more.pop("exactly", {})}}], **more}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def pod(name: str, claim_name: str, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim_name}],
            **spec,
        },
    }


CLASSES = [resource_class(profile) for profile in ("1g.10gb", "3g.40gb", "7g.80gb")]
MODEL = 'device.attributes["gpu.kerf.dev"].model'
OBSTACLES: dict[str, tuple[Document, Document, str]] = {
    # name of the pod: the claim, more of the pod's spec, the obstacle
    "selector": (claim("selector", "1g-10gb", f'{MODEL} == "none"'), {}, "selector"),
    "counters": (claim("counters", "7g-80gb"), {}, "counters"),
    "too-few": (claim("too-few", "1g-10gb", exactly={"count": 8}), {}, "too-few"),
    "constraint": (
        claim(
            "constraint",
            "1g-10gb",
            exactly={"count": 2},
            constraints=[{"distinctAttribute": "gpu.kerf.dev/uuid"}],
        ),
        {},
        "constraint",
    ),
    "affinity": (claim("affinity", "1g-10gb"), {"nodeSelector": {"disk": "ssd"}}, "node-filter"),
}
RUNNING = ["small-1", "small-2"]


@asynccontextmanager
async def busy_cluster(folder: Path) -> AsyncIterator[DemoEnvironment]:
    """Two nodes with one H100 each, a little partition on each, and a pod for each obstacle that waits."""
    async with open_environment(SETTINGS, folder) as environment:
        await environment.apply(CLASSES)
        compiled = {each["metadata"]["name"] for each in CLASSES}
        await environment.wait_for("classes", lambda: compiled <= class_names(environment))
        await environment.wait_for("matching classes", lambda: all(map(matches, environment.classes.store.values())))
        for number, name in enumerate(RUNNING, start=1):
            on_node = {"kubernetes.io/hostname": f"node-{number}"}
            await environment.apply([claim(name, "1g-10gb"), pod(name, name, nodeSelector=on_node)])
        await environment.wait_for("running pods", lambda: phases(environment) == {"Running"})
        for name, (wanted, spec, _) in OBSTACLES.items():
            await environment.apply([wanted, pod(name, name, **spec)])
        await environment.wait_for("waiting pods", lambda: all(waits(environment, name) for name in OBSTACLES))
        yield environment


def class_names(environment: DemoEnvironment) -> set[str]:
    return {each.metadata.name for each in environment.device_classes.store.values()}


def matches(resource_class: ResourceClassObject) -> bool:
    """Whether the controller has counted devices for the class: it counts anew some time after they are published."""
    return any(one.type == "Matching" and one.status == "True" for one in resource_class.status.conditions)


def phases(environment: DemoEnvironment) -> set[str]:
    return {each.status.phase for each in environment.pods.store.values()}


def waits(environment: DemoEnvironment, name: str) -> bool:
    """Whether the scheduler has reported that the pod cannot be placed."""
    return any(
        condition.type == "PodScheduled" and condition.status == "False"
        for each in environment.pods.store.values()
        if each.metadata.name == name
        for condition in each.status.conditions
    )


async def kerf(*arguments: str, code: int = 0) -> str:
    """Run the command line in a thread: a process of its own would import for longer than it works."""
    run = partial(CliRunner().invoke, command_line, arguments, standalone_mode=False, catch_exceptions=False)
    result = await anyio.to_thread.run_sync(run)
    assert (result.return_value or 0) == code, result.output
    return result.stdout


async def test_every_question_is_answered_by_the_cluster_and_alike_by_its_dump(folder: Path) -> None:
    async with busy_cluster(folder) as environment:
        cluster = ("--kubeconfig", str(environment.cluster.kubeconfig))
        dump = folder / "dump.json.gz"
        await kerf("gather", *cluster, "--output-file", str(dump))
        for name, (_, _, obstacle) in OBSTACLES.items():
            online = await kerf("why", "pod", name, *cluster, "-o", "json", code=1)
            answer = json.loads(online)
            found = {reason["obstacle"] for group in answer["groups"] for reason in group["reasons"]}
            assert found == {obstacle}, name
            assert online == await kerf("why", "pod", name, "--from", str(dump), "-o", "json", code=1)
        anonymous, table = folder / "anonymous.json.gz", folder / "names.json"
        await kerf("gather", *cluster, "--anonymize", "--pseudonyms", str(table), "--output-file", str(anonymous))
        assert table.stat().st_mode & 0o777 == 0o600
        pseudonyms = {text: name for name, text in sorted(json.loads(table.read_text()).items(), reverse=True)}
        name = next(name for name in OBSTACLES if name in pseudonyms)
        assert f'"name":"{name}"'.encode() not in gzip.decompress(anonymous.read_bytes())
        said = json.loads(await kerf("why", "pod", pseudonyms[name], "--from", str(anonymous), "-o", "json", code=1))
        assert {reason["obstacle"] for group in said["groups"] for reason in group["reasons"]} == {OBSTACLES[name][2]}
        [remedy, *_] = json.loads(await kerf("why", "pod", "counters", *cluster, "-o", "json", code=1))["remedies"]
        [ending] = remedy["claims"]
        assert ending["pods"] == [ending["claim"]]

        frag = json.loads(await kerf("frag", *cluster, "--size", "7g.80gb", "-o", "json"))
        assert [each["size"] for each in frag["no_advice"]] == ["7g.80gb"], "the pods are bound to their nodes"
        assert {each["size"]: each["free"] for each in frag["sizes"]}["1g.10gb"] == 12

        top = json.loads(await kerf("top", *cluster, "-o", "json"))
        assert top["sizes"] == frag["sizes"]
        causes = {each["subject"]["name"]: each["why"]["causes"][0]["code"] for each in top["claims"] if each["waits"]}
        assert causes == {name: obstacle for name, (_, _, obstacle) in OBSTACLES.items()}
        access = await load_access(environment.cluster.kubeconfig, None)
        async with Client(access, user_agent="test") as client:
            reading = build_reading(await ApiServerSource(client, "default").read(), EVERYTHING)
        rows = {row.subject.name: row for row in reading.overview.claims}
        assert {name for name, row in rows.items() if row.waits} == OBSTACLES.keys()
        assert [(row.pods, row.nodes) for row in (rows["small-1"], rows["small-2"])] == [
            (("small-1",), ("node-1",)),
            (("small-2",), ("node-2",)),
        ]
        assert all(row.age_s is not None for row in rows.values())

        await environment.delete([pod(ending["claim"].partition("/")[2], "")])
        await environment.wait_for(
            "the pod that waited for a whole card's partition",
            lambda: not waits(environment, "counters") and "counters" in running(environment),
        )


def running(environment: DemoEnvironment) -> set[str]:
    return {each.metadata.name for each in environment.pods.store.values() if each.status.phase == "Running"}


async def test_a_plan_says_what_the_scheduler_then_does(folder: Path) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": claim("t", "3g-40gb")["spec"]},
    }
    wanted = pod("p", "")
    wanted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    async with open_environment(SETTINGS, folder) as environment:
        await environment.apply(CLASSES)
        compiled = {each["metadata"]["name"] for each in CLASSES}
        await environment.wait_for("classes", lambda: compiled <= class_names(environment))
        await environment.wait_for("devices", environment.have_all_published)
        manifest = folder / "p.json"
        manifest.write_text(json.dumps({"kind": "List", "items": [template, wanted]}))
        planned = json.loads(
            await kerf("plan", "-f", str(manifest), "-o", "json", "--kubeconfig", str(environment.cluster.kubeconfig))
        )
        assert [(each["demand"], each["copies"]) for each in planned["more"]] == [("Pod default/p", 3)]
        await environment.apply([template, wanted])
        await environment.wait_for("a running pod", lambda: running(environment) == {"p"})
        [held] = environment.claims.store.values()
        assert held.status.allocation is not None
        [result] = held.status.allocation.devices.results
        [device] = planned["placed"][0]["devices"]
        assert device["device"] == str(result.id)
