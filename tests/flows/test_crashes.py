"""Kerf's programs are killed with -9 while a cluster runs on them: nothing is lost, nothing leaks."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from driver.demo.cleanup_check import leftovers
from driver.demo.environment import Stage, open_stage
from driver.demo.manifests import load
from driver.demo.processes import Program
from driver.demo.resources import packaged
from driver.demo.settings import DemoSettings
from driver.partitions.catalog import gpu_model, shell

SETTINGS = DemoSettings(
    files=(),
    nodes=1,
    gpu_model=gpu_model("a100-40gb"),
    gpus=1,
    shell=shell("quad"),
    fpgas=1,
    keep=False,
    verbose=False,
    step_timeout_s=120,
)
OBJECTS = [manifest.body for manifest in load([packaged("examples") / "gpu-small.yaml"])]
PODS = [body for body in OBJECTS if body["kind"] == "Pod"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="kc", dir="/tmp") as root:
        yield Path(root)


@asynccontextmanager
async def running_pods(folder: Path) -> AsyncIterator[Stage]:
    async with open_stage(SETTINGS, folder) as stage:
        await stage.apply(OBJECTS)
        await stage.wait_for("running pods", lambda: phases(stage) == {"Running"})
        yield stage


def phases(stage: Stage) -> set[str]:
    return {pod.status.phase for pod in stage.pods.store.values()}


def program(stage: Stage, prefix: str) -> Program:
    [found] = [running for running in stage.programs if running.name.startswith(prefix)]
    return found


async def restart(stage: Stage, killed: Program) -> None:
    """Start a program again that was killed."""
    stage.programs.remove(killed)
    await stage.start_program(killed.name, killed.arguments)


async def take_back(stage: Stage) -> None:
    await stage.delete(OBJECTS)
    await stage.wait_for("an empty cluster", lambda: not stage.pods.store.values() and not stage.claims.store.values())


async def test_a_plugin_killed_between_prepare_and_unprepare_takes_back_what_its_predecessor_made(folder: Path) -> None:
    async with running_pods(folder) as stage:
        plugin = program(stage, "kubelet-plugin")
        await plugin.kill()
        held = leftovers(stage)
        assert (held.partitions, held.cdi_files, held.checkpoint_records) == (2, 2, 2)
        await restart(stage, plugin)
        await take_back(stage)
        await stage.stop_programs()
        assert leftovers(stage).is_clean


async def test_pods_that_go_while_the_plugin_is_dead_wait_for_it_and_leave_nothing(folder: Path) -> None:
    async with running_pods(folder) as stage:
        plugin = program(stage, "kubelet-plugin")
        await plugin.kill()
        stage.programs.remove(plugin)
        await stage.delete(OBJECTS)
        await stage.wait_for("terminating pods", lambda: all(pod.is_terminating for pod in stage.pods.store.values()))
        assert len(stage.pods.store.values()) == len(PODS), "a pod ended though nobody took its devices back"
        await stage.start_program(plugin.name, plugin.arguments)
        await take_back(stage)
        await stage.stop_programs()
        assert leftovers(stage).is_clean


async def test_a_killed_controller_is_not_missed_by_running_pods_and_compiles_again_when_it_is_back(
    folder: Path,
) -> None:
    async with running_pods(folder) as stage:
        controller = program(stage, "controller")
        await controller.kill()
        assert phases(stage) == {"Running"}
        await restart(stage, controller)
        [body] = [body for body in OBJECTS if body["kind"] == "ResourceClass"]
        await stage.apply([{**body, "metadata": {"name": "another"}}])
        await stage.wait_for(
            "the new class's DeviceClass",
            lambda: any(held.metadata.name == "another" for held in stage.device_classes.store.values()),
        )
        await take_back(stage)
        await stage.stop_programs()
        assert leftovers(stage).is_clean
