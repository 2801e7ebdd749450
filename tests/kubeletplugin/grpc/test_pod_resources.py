"""The kubelet's account of the claims that its pods use."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.podresources.v1 import LIST, ClaimUse, DeviceUse, PodUses
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesClient, PodResourcesError
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, unary
from tests.kubeletplugin.harness import machine, short_directory

USES = (
    ClaimUse(claim=ObjectRef("default", "one"), pod=ObjectRef("default", "first")),
    ClaimUse(claim=ObjectRef("default", "one"), pod=ObjectRef("default", "second")),
)
DEVICES = (
    DeviceUse(resource="kerf.dev/small", id="gpu-0-a", pod=ObjectRef("default", "first")),
    DeviceUse(resource="kerf.dev/small", id="gpu-0-b", pod=ObjectRef("default", "first")),
)


async def list_from(socket: Path, uses: tuple[ClaimUse, ...]) -> Sequence[ClaimUse]:
    async def answer(_: None) -> PodUses:
        return PodUses(claims=uses, devices=DEVICES)

    path, handler = unary(LIST, answer)
    async with serving_at(socket, {path: handler}, grace_s=0.1):
        return await PodResourcesClient(socket).list_uses() or ()


@pytest.mark.parametrize("uses", [(), USES], ids=["none", "a claim of two pods"])
async def test_the_claims_of_all_pods_are_listed(uses: tuple[ClaimUse, ...]) -> None:
    with short_directory() as root:
        assert tuple(await list_from(root / "kubelet.sock", uses)) == uses


def test_the_service_has_the_kubelets_name_and_a_claim_of_two_containers_is_used_once() -> None:
    assert LIST.path == "/v1.PodResourcesLister/List"
    assert LIST.decode_response(LIST.encode_response(PodUses(claims=(*USES, USES[0])))).claims == USES


async def test_the_device_ids_of_all_containers_are_listed() -> None:
    async def answer(_: None) -> PodUses:
        return PodUses(claims=USES, devices=DEVICES)

    path, handler = unary(LIST, answer)
    with short_directory() as root:
        async with serving_at(root / "kubelet.sock", {path: handler}, grace_s=0.1):
            assert await PodResourcesClient(root / "kubelet.sock").list_device_uses() == DEVICES


async def test_a_kubelet_whose_folder_is_not_there_is_not_one_whose_pods_have_no_devices() -> None:
    with short_directory() as root:
        assert await PodResourcesClient(root / "pod-resources/kubelet.sock").list_device_uses() is None


async def test_without_the_folder_nothing_is_listed() -> None:
    with short_directory() as root:
        assert await PodResourcesClient(root / "pod-resources/kubelet.sock").list_uses() is None


async def test_a_kubelet_that_does_not_answer_says_nothing() -> None:
    with short_directory() as root, pytest.raises(PodResourcesError, match=r"does not say at .*kubelet.sock what"):
        await PodResourcesClient(root / "kubelet.sock").list_uses()


@pytest.mark.parametrize("data", [b"\xff" * 16, b"\x0a\xff"], ids=["no message", "cut"])
async def test_an_account_that_cannot_be_read_is_not_one_without_pods(data: bytes) -> None:
    """``grpc.aio`` returns None for such an answer, which stands for a kubelet whose folder the plugin may not see."""

    async def answer(_: None) -> PodUses:
        return PodUses(claims=USES, devices=DEVICES)

    path, handler = unary(replace(LIST, encode_response=lambda _: data), answer)
    with short_directory() as root:
        async with serving_at(root / "kubelet.sock", {path: handler}, grace_s=0.1):
            client = PodResourcesClient(root / "kubelet.sock")
            for ask in (client.list_uses, client.list_device_uses):
                with pytest.raises(PodResourcesError, match="what its pods use: unreadable answer: "):
                    await ask()


def test_the_socket_is_the_kubelets_own() -> None:
    with machine() as node:
        assert node.settings.pod_resources_socket == node.settings.kubelet_root / "pod-resources/kubelet.sock"


async def test_a_folder_that_cannot_be_looked_at_says_nothing() -> None:
    """EIO in this one call ended the plugin, as an error of the program."""
    with pytest.raises(PodResourcesError, match=r"cannot see whether .* is there: File name too long"):
        await PodResourcesClient(Path("/", "x" * 300, "kubelet.sock")).list_uses()
