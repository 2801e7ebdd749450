"""A variable that a container has once, made for all devices of a request: what two requests or claims of one container
would lose without a word (oneAPI Level Zero's ``ZE_AFFINITY_MASK``)."""

from collections.abc import Iterator, Sequence

import pytest

from kerf_dra.api.core.v1 import Container, ContainerClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.base import Handle
from tests.fakes.claims import CONSUMER, NAMESPACE, claim, result
from tests.fakes.hardware import FakeBackend
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.deviceplugin.node import RESOURCE, offering_node
from tests.kubeletplugin.deviceplugin.test_interface import FIRST, SECOND
from tests.kubeletplugin.harness import Machine, machine


class MaskingBackend(FakeBackend):
    """A backend whose partitions, not its whole cards, need a variable made for all of a request."""

    def request_edits(self, handles: Sequence[Handle]) -> ContainerEdits:
        names = sorted(str(handle["device"]) for handle in handles if "-at-" in str(handle["device"]))
        return ContainerEdits(env=(f"MASK={'+'.join(names)}",)) if names else ContainerEdits()


class LimitingBackend(FakeBackend):
    """A backend that says how much memory each device has, as those for GPUs do of shares."""

    def edits(self, handle: Handle) -> ContainerEdits:
        return ContainerEdits(env=("KERF_DEVICE_X=uuid", "KERF_MEMORY_LIMIT_X=64"))


@pytest.fixture
def node() -> Iterator[Machine]:
    with machine() as made:
        made.backend = MaskingBackend(made.backend.cards, made.backend.file)
        yield made


def hold_pod(node: Machine, *containers: tuple[str, ...]) -> None:
    """Have the API server show the claims' pod, whose containers use the claims of these names."""
    used = sorted({name for names in containers for name in names})
    node.cluster.pods[ObjectRef(NAMESPACE, CONSUMER.name)] = Pod(
        metadata=ObjectMeta(namespace=NAMESPACE, name=CONSUMER.name),
        spec=PodSpec(
            resource_claims=tuple(PodResourceClaim(name=f"as-{name}", resource_claim_name=name) for name in used),
            containers=tuple(
                Container(
                    name=f"c{number}",
                    resources=ResourceRequirements(claims=tuple(ContainerClaim(name=f"as-{name}") for name in names)),
                )
                for number, names in enumerate(containers)
            ),
        ),
    )


@pytest.mark.parametrize("other", [SECOND, "gpu-1"], ids=["another partition", "a whole card"])
async def test_two_claims_of_one_container_are_refused_with_the_reason(node: Machine, other: str) -> None:
    one, two = node.cluster.add(claim("one", FIRST)), node.cluster.add(claim("two", other))
    hold_pod(node, ("one",), ("one", "two"))
    async with node.plugin():
        assert await node.kubelet.prepare(one)
        with pytest.raises(
            ClaimError, match=r"container c1 of pod default/pod uses the claims one and two, .* variable MASK"
        ):
            await node.kubelet.prepare(two)
        with pytest.raises(ClaimError, match="make one claim with one request of several devices"):
            await node.kubelet.prepare(one)
        await node.kubelet.unprepare(two)
        assert await node.kubelet.prepare(one)


async def test_claims_of_different_containers_and_of_other_pods_are_prepared(node: Machine) -> None:
    one, two = node.cluster.add(claim("one", FIRST)), node.cluster.add(claim("two", SECOND))
    hold_pod(node, ("one",), ("two",), ())
    async with node.plugin():
        assert await node.kubelet.prepare(one)
        assert await node.kubelet.prepare(two)


async def test_two_claims_of_whole_cards_need_no_variable(node: Machine) -> None:
    one, two = node.cluster.add(claim("one", "gpu-0")), node.cluster.add(claim("two", "gpu-1"))
    hold_pod(node, ("one", "two"))
    async with node.plugin():
        assert await node.kubelet.prepare(one)
        assert await node.kubelet.prepare(two)


async def test_a_pod_that_the_api_server_does_not_show_refuses_nothing(node: Machine) -> None:
    one, two = node.cluster.add(claim("one", FIRST)), node.cluster.add(claim("two", SECOND))
    async with node.plugin():
        assert await node.kubelet.prepare(one)
        assert await node.kubelet.prepare(two)


async def test_a_container_with_several_devices_of_a_resource_gets_one_variable_for_all() -> None:
    """No request of a claim has them: the answer to Allocate has it (RM-05)."""
    async with offering_node() as node:
        backend = node.machine.backend
        node.machine.backend = MaskingBackend(backend.cards, backend.file)
        async with node.machine.plugin():
            node.offer(_1g_1gb=2)
            await node.kubelet.wait_list(RESOURCE, 2)
            answer = await node.kubelet.allocate(RESOURCE, FIRST, SECOND)
            assert answer.envs["MASK"] == f"{FIRST}+{SECOND}"


async def test_two_shares_of_one_device_give_their_container_two_amounts(node: Machine) -> None:
    """It had the amount of one of them, under one name."""
    node.backend = LimitingBackend(node.backend.cards, node.backend.file)
    shares = [result(f"{FIRST}-shared", share=name, request=name) for name in ("one", "other")]
    held = node.cluster.add(claim("both", *shares))
    async with node.plugin():
        assert await node.kubelet.prepare(held)
        written = node.cdi_spec(held.uid)
        assert [written.count(f"{name}=") for name in ("KERF_MEMORY_LIMIT_X", "KERF_MEMORY_LIMIT_X_2")] == [1, 1]
        assert written.count("KERF_DEVICE_X=uuid") == 2
