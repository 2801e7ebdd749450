"""Registration: sockets are made again until the kubelet has registered the plugin."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.registration.v1 import PluginInfo
from kerf_dra.driver.kubeletplugin.grpc.registration import Registrar, remove_abandoned_sockets
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.kubelet import FakeKubelet
from tests.kubeletplugin.harness import LONGEST_S, short_directory
from tests.kubeletplugin.wait import until


@asynccontextmanager
async def registrar(silence_s: float = 60) -> AsyncIterator[tuple[Registrar, FakeKubelet]]:
    with short_directory() as root, anyio.fail_after(LONGEST_S):
        info = PluginInfo(name="gpu.kerf.dev", endpoint=str(root / "dra.sock"), supported_versions=("v1.DRAPlugin",))
        offered = Registrar(
            info,
            root / "plugins_registry/gpu.kerf.dev-reg.sock",
            silence_s=silence_s,
            poll_s=0.005,
            grace_s=0.1,
            backoff=Backoff(first_s=0.001, factor=2, limit_s=0.01, jitter=0),
        )
        async with anyio.create_task_group() as group:
            await group.start(offered.run)
            yield offered, FakeKubelet(root)
            group.cancel_scope.cancel()


async def test_there_is_a_problem_until_the_kubelet_says_yes() -> None:
    async with registrar() as (offered, kubelet):
        assert offered.problem is not None
        assert "the kubelet has not asked for" in offered.problem
        assert await kubelet.register() == kubelet.info
        await until(lambda: offered.problem is None)
        assert offered.problem is None


async def test_a_refusal_is_told_and_followed_by_a_new_socket(caplog: pytest.LogCaptureFixture) -> None:
    async with registrar() as (offered, kubelet):
        await kubelet.register(error="plugin gpu.kerf.dev is already registered")
        await until(lambda: "has not asked" in str(offered.problem))
        await kubelet.register()
        await until(lambda: offered.problem is None)
    told = "with the kubelet again: the kubelet refused the registration: plugin gpu.kerf.dev is already registered"
    assert told in caplog.text, "the problem, until there was a new socket"


async def test_silence_is_followed_by_new_sockets(caplog: pytest.LogCaptureFixture) -> None:
    async with registrar(silence_s=0.02) as (_, kubelet):
        await until(
            lambda: caplog.text.count("registering the plugin with the kubelet again: the kubelet has not asked") > 1
        )
        await until(lambda: bool(kubelet.sockets))


async def test_a_removed_socket_is_made_anew() -> None:
    async with registrar() as (offered, kubelet):
        await kubelet.register()
        kubelet.sockets[0].unlink()
        await until(lambda: offered.problem is not None and bool(kubelet.sockets))
        await kubelet.register()
        await until(lambda: offered.problem is None)


async def test_a_kubelet_that_restarts_finds_the_plugin_again() -> None:
    async with registrar() as (offered, kubelet):
        for _ in range(2):
            await kubelet.register()
            await until(lambda: offered.problem is None)


async def test_the_socket_goes_with_the_plugin() -> None:
    async with registrar() as (_, kubelet):
        assert len(kubelet.sockets) == 1
        directory = kubelet.root / "plugins_registry"
    assert not directory.exists() or not list(directory.iterdir())


def test_a_folder_that_cannot_be_listed_keeps_no_plugin_from_its_registration(caplog: pytest.LogCaptureFixture) -> None:
    """EIO in the listing ended the plugin at its start, as an error of the program."""
    remove_abandoned_sockets(Path("/", "x" * 300, "gpu.kerf.dev-reg.sock"), "gpu.kerf.dev")
    assert "cannot remove the sockets of instances that have ended" in caplog.text
