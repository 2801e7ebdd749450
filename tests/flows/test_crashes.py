"""Kerf's programs are killed with -9 while a cluster runs on them: nothing is lost, nothing leaks."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kerf_dra.driver.demo.environment import DemoEnvironment, DemoSettings, find_packaged_folder, open_environment
from kerf_dra.driver.demo.processes import Program
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell

SETTINGS = DemoSettings(
    files=(),
    nodes=1,
    gpu_model=gpu_model("a100-40gb"),
    gpus=1,
    shell=shell("quad"),
    fpgas=1,
    keep=False,
    verbose=False,
    step_timeout_s=240,
)
OBJECTS = list(yaml.safe_load_all((find_packaged_folder("examples") / "gpu-small/gpu-small.yaml").read_text()))
PODS = [body for body in OBJECTS if body["kind"] == "Pod"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="kc", dir="/tmp") as root:
        yield Path(root)


@asynccontextmanager
async def running_pods(folder: Path) -> AsyncIterator[DemoEnvironment]:
    async with open_environment(SETTINGS, folder) as environment:
        await environment.apply(OBJECTS)
        await environment.wait_for("running pods", lambda: phases(environment) == {"Running"})
        yield environment


def phases(environment: DemoEnvironment) -> set[str]:
    return {pod.status.phase for pod in environment.pods.store.values()}


def program(environment: DemoEnvironment, prefix: str) -> Program:
    [found] = [running for running in environment.programs if running.name.startswith(prefix)]
    return found


async def restart(environment: DemoEnvironment, killed: Program) -> None:
    """Start a program again that was killed."""
    environment.programs.remove(killed)
    await environment.start_program(killed.name, killed.arguments)


async def take_back(environment: DemoEnvironment) -> None:
    await environment.delete(OBJECTS)
    await environment.wait_for(
        "an empty cluster", lambda: not environment.pods.store.values() and not environment.claims.store.values()
    )


async def test_a_plugin_killed_between_prepare_and_unprepare_takes_back_what_its_predecessor_made(folder: Path) -> None:
    async with running_pods(folder) as environment:
        plugin = program(environment, "kubelet-plugin")
        await plugin.kill()
        held = environment.count_leftovers()
        assert (held.partitions, held.cdi_files, held.checkpoint_records) == (2, 2, 2)
        await restart(environment, plugin)
        await take_back(environment)
        await environment.stop_programs()
        assert environment.count_leftovers().is_clean


async def test_pods_that_go_while_the_plugin_is_dead_wait_for_it_and_leave_nothing(folder: Path) -> None:
    async with running_pods(folder) as environment:
        plugin = program(environment, "kubelet-plugin")
        await plugin.kill()
        environment.programs.remove(plugin)
        await environment.delete(OBJECTS)
        await environment.wait_for(
            "terminating pods", lambda: all(pod.is_terminating for pod in environment.pods.store.values())
        )
        assert len(environment.pods.store.values()) == len(PODS), "a pod ended though nobody took its devices back"
        await environment.start_program(plugin.name, plugin.arguments)
        await take_back(environment)
        await environment.stop_programs()
        assert environment.count_leftovers().is_clean


async def test_a_killed_controller_is_not_missed_by_running_pods_and_compiles_again_when_it_is_back(
    folder: Path,
) -> None:
    async with running_pods(folder) as environment:
        controller = program(environment, "controller")
        await controller.kill()
        assert phases(environment) == {"Running"}
        await restart(environment, controller)
        [body] = [body for body in OBJECTS if body["kind"] == "ResourceClass"]
        await environment.apply([{**body, "metadata": {"name": "another"}}])
        await environment.wait_for(
            "the new class's DeviceClass",
            lambda: any(held.metadata.name == "another" for held in environment.device_classes.store.values()),
        )
        await take_back(environment)
        await environment.stop_programs()
        assert environment.count_leftovers().is_clean
