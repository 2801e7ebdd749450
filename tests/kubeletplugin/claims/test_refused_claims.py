"""What the hardware keeps refusing costs the pod its node, where its owner replaces it, and else a person is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.kube.http.errors import UnreachableError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
)
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import PrepareResult
from kerf_dra.driver.kubeletplugin.claims.refused_claims import RefusedClaims
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import MAX_EVICTING, REFUSALS
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.scheduling.extended_resources import EXTENDED_CLAIM
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NAMESPACE, claim, ref
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.observed_state import ObservedState
from tests.kubeletplugin.records import LATER, device, record
from tests.kubeletplugin.wait import until

DEPLOYMENT = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-of-web", controller=True)
REASON = "in use outside of Kerf: 1g.1gb at 0"


class Records:
    """A checkpoint, as far as it is read here."""

    def __init__(self) -> None:
        self.records: dict[str, PreparedClaim] = {}


class RequestedSurveys(list[str]):
    """The cards that are to be surveyed, by UUID."""

    def request(self, card_uuid: str) -> None:
        self.append(card_uuid)


class Node:
    """A node whose hardware refuses, and what follows."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.checkpoint = Records()
        self.surveyed = RequestedSurveys()
        self.state = ObservedState(self.checkpoint.records, clock=lambda: 1000)
        self.restrictions = self.state.restrictions
        self.tracker = self.restrictions.refusals
        self.refused = RefusedClaims(
            cluster=self.cluster,
            checkpoint=self.checkpoint,  # type: ignore[arg-type]
            state=self.state,
            driver=DRIVER,
            surveyor=self.surveyed,  # type: ignore[arg-type]
            recheck_s=0.001,
        )

    def add(
        self, name: str, *owners: OwnerReference, annotations: dict[str, str] | None = None, start: int = 0
    ) -> ClaimRef:
        """Add a claim and the pod that uses it."""
        made = claim(name, f"gpu-0-1g-1gb-at-{start}")
        metadata = replace(made.metadata, annotations=annotations or {})
        consumer = ResourceClaimConsumerReference(resource="pods", name=f"pod-of-{name}", uid=f"uid-of-pod-{name}")
        self.put(replace(made, metadata=metadata, status=replace(made.status, reserved_for=(consumer,))))
        pod = Pod(
            metadata=ObjectMeta(
                namespace=NAMESPACE, name=consumer.name, uid=consumer.uid, owner_references=tuple(owners)
            )
        )
        self.cluster.pods[ObjectRef(NAMESPACE, consumer.name)] = pod
        return ref(made)

    def hold(self, start: int) -> None:
        """Let a survey find that somebody else has the partition at ``start``."""
        found = FoundPartition(id="by-hand", profile="1g.1gb", placement=Placement(start, 1))
        survey = CardSurvey(card_uuid="GPU-0", partitions=(found,))
        self.restrictions.surveys.update(gpu(0), survey, (), "boot", LATER)

    def put(self, made: ResourceClaim) -> None:
        self.cluster.add(made)

    def refuse(self, held: ClaimRef, *, times: int = REFUSALS, error: Exception | None = None, start: int = 0) -> None:
        failed = DevicesFailedError([refused(start)], {0: error or HardwareConflictError(REASON)})
        for _ in range(times):
            self.refused.note_prepare(prepare_result(held, failed))

    def effect(self, start: int = 0) -> str:
        taints = self.tracker.build_taints(from_card_part(refused(start).part))
        return taints[0].effect if taints else ""


def prepare_result(held: ClaimRef, error: Exception | None = None) -> PrepareResult:
    """What a call of the kubelet for a claim came to."""
    read = claim(held.name, "gpu-0-1g-1gb-at-0")
    return PrepareResult(claim=read, ref=held, record=None, is_early=False, made_devices=True, error=error)


def refused(start: int = 0) -> PreparedDevice:
    made = device(f"gpu-0-1g-1gb-at-{start}", start=start)
    return replace(made, part=replace(made.part, profile="1g.1gb"))


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(node.refused.run)
            yield
            group.cancel_scope.cancel()


async def test_a_pod_with_an_owner_is_evicted_after_the_third_refusal_and_not_before() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    async with running(node):
        node.refuse(held, times=REFUSALS - 1)
        await anyio.wait_all_tasks_blocked()
        assert (node.effect(), node.surveyed) == ("", ["GPU-0", "GPU-0"])
        node.refuse(held, times=1)
        await until(lambda: bool(node.effect()))
    assert node.effect() == "NoExecute"
    assert node.state.noted["refusals"] == 1
    message = (
        f"the hardware keeps refusing gpu-0-1g-1gb-at-0: {REASON}; the pod is evicted, so that its owner replaces it "
        "elsewhere"
    )
    assert node.cluster.reported == [
        ("ResourceClaim", "web", "DeviceRefused", message),
        ("Pod", "pod-of-web", "DeviceRefused", message),
    ]


async def test_what_is_busy_at_each_of_three_calls_is_refused_at_the_third() -> None:
    """Nothing is held, so that no look in between finds the claim due."""
    node = Node()
    held, other = (node.add(name, DEPLOYMENT, start=start) for name, start in (("web", 0), ("other", 1)))
    async with running(node):
        for _ in range(REFUSALS):
            assert (node.effect(0), node.effect(1)) == ("", "")
            node.refuse(held, times=1, error=HardwareBusyError("busy"))
            await anyio.wait_all_tasks_blocked()
        assert (node.effect(0), node.effect(1)) == ("NoExecute", "")
        node.refuse(other, times=1, error=HardwareBusyError("busy"), start=1)
        await anyio.wait_all_tasks_blocked()
    assert node.effect(1) == ""


async def test_what_was_told_of_one_device_is_not_told_again_with_the_next_one() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    async with running(node):
        for start in (0, 1):
            node.refuse(held, start=start)
            await until(lambda: node.effect(0) != "" and node.effect(start) != "")  # noqa: B023  (awaited here)
    told = [message for _, name, _, message in node.cluster.reported if name == "web"]
    assert [f"at-{start}" in message for start, message in enumerate(told)] == [True, True]


async def test_what_stays_held_after_one_try_is_not_left_to_the_kubelets_next_ones() -> None:
    """The kubelet repeats a failed prepare every ten to twenty seconds: three of its tries would take half a minute."""
    node = Node()
    held = node.add("web", DEPLOYMENT)
    node.hold(start=0)
    async with running(node):
        node.refuse(held, times=1)
        await until(lambda: bool(node.effect()))
        assert node.surveyed == ["GPU-0"] * REFUSALS
    assert node.effect() == "NoExecute"


async def test_what_is_free_again_at_the_second_look_costs_nobody_its_node() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    async with running(node):
        node.refuse(held, times=1)
        await until(lambda: not node.refused.is_rechecking)
        node.refuse(held, times=1)
        await until(lambda: not node.refused.is_rechecking)
    assert node.effect() == ""


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("bare pod", "pod pod-of-web has no owner that would create it again"),
        ("extended resource", "pods with extended resources are not evicted"),
        ("old cluster", "this cluster evicts no pod from a tainted device"),
        ("pod group", "the claim is reserved for podgroups/team, which is not a pod"),
        ("another share", "claim default/other uses another share of the device"),
        ("another share that was refused, too", "claim default/other uses another share of the device"),
        ("another tenant's share", "because a claim of another namespace uses another share of the device"),
        ("nobody", "there is no pod to evict"),
    ],
)
async def test_where_eviction_cannot_work_or_loses_work_a_person_is_told_what_to_delete(
    case: str, expected: str
) -> None:
    node = Node()
    node.add("neighbor", DEPLOYMENT, start=3)  # which has another device
    neighbor = record("neighbor", refused(3))
    node.checkpoint.records[neighbor.claim.uid] = neighbor
    annotations = {EXTENDED_CLAIM: "true"} if case == "extended resource" else {}
    held = node.add("web", *([] if case == "bare pod" else [DEPLOYMENT]), annotations=annotations)
    node.cluster.can_evict = case != "old cluster"
    if case == "another share":
        other = record("other", refused())
        node.checkpoint.records[other.claim.uid] = other
    if case == "another tenant's share":
        theirs = record("other", refused())
        node.checkpoint.records[theirs.claim.uid] = replace(theirs, claim=ClaimRef("theirs", "other", theirs.claim.uid))
    if case == "another share that was refused, too":
        node.add("other")
    if case in {"pod group", "nobody"}:
        group = ResourceClaimConsumerReference(
            api_group="scheduling.k8s.io", resource="podgroups", name="team", uid="t"
        )
        known = node.cluster.claims[NAMESPACE, "web"]
        consumers = (group,) if case == "pod group" else ()
        node.put(replace(known, status=replace(known.status, reserved_for=consumers)))
    async with running(node):
        node.refuse(held)
        await until(lambda: bool(node.effect()))
    assert node.effect() == "NoSchedule", "no new claim gets it, and nobody is evicted"
    messages = [message for *_, message in node.cluster.reported]
    assert all(expected in message and "; delete pod " in message for message in messages)
    named = "default/pod-of-web" if case not in {"pod group", "nobody"} else "that uses the claim"
    assert f"; delete pod {named} to have it replaced, because " in messages[0]


async def test_no_pod_of_a_claim_is_evicted_that_nothing_would_create_again() -> None:
    node = Node()
    held, _ = node.add("web", DEPLOYMENT), node.add("bare")
    known = node.cluster.claims[NAMESPACE, "web"]
    consumers = (*known.status.reserved_for, *node.cluster.claims[NAMESPACE, "bare"].status.reserved_for)
    node.cluster.remove(ref(claim("bare")))
    node.put(replace(known, status=replace(known.status, reserved_for=consumers)))
    async with running(node):
        node.refuse(held)
        await until(lambda: bool(node.effect()))
    assert node.effect() == "NoSchedule"
    assert [(kind, name) for kind, name, *_ in node.cluster.reported] == [
        ("ResourceClaim", "web"),
        ("Pod", "pod-of-web"),
        ("Pod", "pod-of-bare"),
    ]
    message = node.cluster.reported[0][-1]
    assert "; delete pod default/pod-of-web and default/pod-of-bare to have it replaced, because " in message
    assert message.endswith("pod pod-of-bare has no owner that would create it again")


async def test_only_the_hardware_refuses() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    async with running(node):
        node.refuse(held, times=9, error=InvalidDocumentError("config", [Problem("x", "is not known")]))
        await anyio.wait_all_tasks_blocked()
        assert node.effect() == ""
        node.refuse(held, error=HardwareBusyError("busy"))
        await until(lambda: bool(node.effect()))


async def test_few_placements_evict_at_a_time() -> None:
    node = Node()
    async with running(node):
        for start in range(MAX_EVICTING + 1):
            node.refuse(node.add(f"web-{start}", DEPLOYMENT, start=start), start=start)
            await until(lambda at=start: bool(node.effect(at)))  # type: ignore[misc]
    assert [node.effect(start) for start in range(MAX_EVICTING + 1)] == ["NoExecute", "NoExecute", "NoSchedule"]
    assert "placements of this node evict pods already" in node.cluster.reported[-1][-1]


async def test_a_claim_that_is_gone_meanwhile_costs_nobody_anything() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    async with running(node):
        node.cluster.remove(held)
        node.refuse(held)
        await until(lambda: node.cluster.reads == 1)
        await anyio.wait_all_tasks_blocked()
    assert (node.effect(), node.cluster.reported) == ("", [])


async def test_while_the_api_server_is_silent_it_is_asked_again() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    node.cluster.is_down = True
    async with running(node):
        node.refuse(held)
        await until(lambda: node.cluster.reads == 2)
        node.cluster.is_down = False
        await until(lambda: bool(node.effect()))


async def test_a_device_that_is_to_be_prepared_is_known_to_be_allocated() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    node.restrictions.allocated.replace(())
    node.refuse(held, times=1)
    assert node.restrictions.allocated.has(refused().share.id)
    assert node.state.noted["refusals"] == 1


async def test_a_success_ends_the_count() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    async with running(node):
        node.refuse(held, times=REFUSALS - 1)
        node.refused.note_prepare(prepare_result(held))
        node.refuse(held, times=REFUSALS - 1)
        await anyio.wait_all_tasks_blocked()
    assert node.effect() == ""


async def test_a_placement_that_may_evict_nobody_more_says_so_again() -> None:
    """It is refused to a claim with a bare pod, then to another one while two placements evict."""
    node = Node()
    async with running(node):
        node.refuse(node.add("bare", start=2), start=2)
        await until(lambda: bool(node.effect(2)))
        for start in range(MAX_EVICTING):
            node.refuse(node.add(f"web-{start}", DEPLOYMENT, start=start), start=start)
            await until(lambda at=start: bool(node.effect(at)))  # type: ignore[misc]
        node.cluster.remove(ref(claim("bare")))
        told = len(node.cluster.reported)
        node.refuse(node.add("next", DEPLOYMENT, start=2), start=2)
        await until(lambda: len(node.cluster.reported) > told)
    assert node.effect(2) == "NoSchedule"
    assert f"because {MAX_EVICTING} placements of this node evict pods already" in node.cluster.reported[-1][-1]


async def test_what_is_held_is_no_longer_looked_at_for_a_claim_that_is_gone() -> None:
    """Its kubelet had forgotten it: each look read the claim and surveyed the card, for as long as somebody held it."""
    node = Node()
    held = node.add("web", DEPLOYMENT)
    node.hold(0)
    async with running(node):
        node.cluster.remove(held)
        node.refuse(held)
        await until(lambda: not node.refused.is_rechecking)


async def test_while_the_api_server_is_away_what_is_due_is_tried_with_a_back_off() -> None:
    node = Node()
    held = node.add("web", DEPLOYMENT)
    node.hold(0)
    node.cluster.errors["web"] = UnreachableError("GET claim", "connection refused")
    async with running(node):
        node.refuse(held)
        await until(lambda: node.cluster.reads == 3)
        looks = len(node.surveyed)
        assert looks <= REFUSALS + 3, "a look for each try, not one each millisecond"
        node.cluster.errors.clear()
        await until(lambda: bool(node.effect()))
