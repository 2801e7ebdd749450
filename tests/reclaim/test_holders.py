"""Who holds a card: by cases, and compared with a judge that looks at every claim and pod by itself."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod, PodExtendedResourceClaimStatus
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference, ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.reclaim.holders import STAYING, HolderVerdict, find_holders
from tests.conftest import IS_LONG
from tests.reclaim.cases import CARD, OWNER, claim, pod, result

PART = "gpu-1-2g-20gb-at-0"


def verdicts(claims: list[ResourceClaim], pods: list[Pod], *, evicts_bare: bool = False) -> dict[str, HolderVerdict]:
    found = find_holders(CARD, claims, pods, evicts_bare=evicts_bare)
    return {str(each.pod or each.claims[0]): each.verdict for each in found}


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, HolderVerdict.EVICT),
        ({"phase": "Pending"}, HolderVerdict.EVICT),
        ({"phase": "Succeeded"}, HolderVerdict.ENDING),
        ({"phase": "Failed"}, HolderVerdict.ENDING),
        ({"is_terminating": True}, HolderVerdict.ENDING),
        ({"owner": None}, HolderVerdict.BARE),
        ({"owner": replace(OWNER, controller=None)}, HolderVerdict.BARE),
        ({"owner": replace(OWNER, kind="Node")}, HolderVerdict.STATIC),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}, "owner": None}, HolderVerdict.STATIC),
        ({"annotations": {"kerf.dev/do-not-evict": "true"}}, HolderVerdict.PROTECTED),
        ({"annotations": {"kerf.dev/do-not-evict": ""}}, HolderVerdict.PROTECTED),
        ({"labels": {"kerf.dev/do-not-evict": "true"}}, HolderVerdict.PROTECTED),
        ({"labels": {"kerf.dev/do-not-evict": "false"}}, HolderVerdict.EVICT),
        ({"owner": replace(OWNER, kind="DaemonSet")}, HolderVerdict.EVICT),
    ],
)
def test_what_a_pod_is_decides_whether_it_is_evicted(fields: dict[str, Any], verdict: HolderVerdict) -> None:
    pods = [pod("web", "c", **fields), pod("other", "d")]
    claims = [claim("c", result(PART), users=["web"]), claim("d", result("gpu-0"), users=["other"])]
    assert verdicts(claims, pods) == {"default/web": verdict}


def test_pods_of_the_system_namespace_are_not_evicted() -> None:
    pods = [pod("web", "c", namespace="kube-system")]
    assert verdicts([claim("c", result(PART), users=["web"], namespace="kube-system")], pods) == {
        "kube-system/web": HolderVerdict.SYSTEM
    }


def test_bare_pods_are_evicted_where_that_is_allowed_and_static_ones_are_not() -> None:
    pods = [pod("bare", "c", owner=None), pod("static", "d", owner=replace(OWNER, kind="Node"))]
    claims = [claim("c", result(PART), users=["bare"]), claim("d", result("gpu-1"), users=["static"])]
    assert verdicts(claims, pods, evicts_bare=True) == {
        "default/bare": HolderVerdict.EVICT,
        "default/static": HolderVerdict.STATIC,
    }


def test_a_pod_whose_claim_tolerates_the_taint_stays_for_it_would_get_the_card_again() -> None:
    pods = [pod("check", "c"), pod("web", "d")]
    claims = [
        claim("c", result(PART, tolerates=True), users=["check"]),
        claim("d", result("gpu-1-1g-10gb-at-6"), users=["web"]),
    ]
    assert verdicts(claims, pods) == {"default/check": HolderVerdict.TOLERATES, "default/web": HolderVerdict.EVICT}


def test_admin_access_holds_nothing_unless_the_pod_has_a_part_of_the_card_as_well() -> None:
    pods = [pod("monitor", "c"), pod("both", "d", "e")]
    claims = [
        claim("c", result("gpu-1-monitor", admin=True), users=["monitor"]),
        claim("d", result("gpu-1-monitor", admin=True), users=["both"]),
        claim("e", result(PART), users=["both"]),
    ]
    assert verdicts(claims, pods) == {
        "default/both": HolderVerdict.EVICT,
        "default/monitor": HolderVerdict.ADMIN_ACCESS,
    }


def test_a_pod_whose_claim_is_not_its_own_stays_for_a_new_one_would_get_the_card_by_the_same_claim() -> None:
    pods = [pod("named", "c"), pod("own", "d"), pod("watching", "e", "f")]
    claims = [
        claim("c", result(PART), users=["named"], is_own=False),
        claim("d", result("gpu-1-1g-10gb-at-6"), users=["own"]),
        claim("e", result("gpu-1-monitor", admin=True), users=["watching"], is_own=False),
        claim("f", result("gpu-1-1g-10gb-at-5"), users=["watching"]),
    ]
    assert verdicts(claims, pods) == {
        "default/named": HolderVerdict.SHARED_CLAIM,
        "default/own": HolderVerdict.EVICT,
        "default/watching": HolderVerdict.EVICT,
    }


def test_all_pods_of_a_shared_claim_hold_the_card_each_once() -> None:
    pods = [pod("a", "c"), pod("b", "c", "d")]
    claims = [claim("c", result(f"{PART}-shared"), users=["a", "b"]), claim("d", result(PART), users=["b"])]
    found = find_holders(CARD, claims, pods, evicts_bare=False)
    assert [(str(each.pod), [one.name for one in each.claims], each.devices) for each in found] == [
        ("default/a", ["c"], (f"{PART}-shared",)),
        ("default/b", ["c", "d"], (f"{PART}-shared", PART)),
    ]


def test_the_claim_for_extended_resources_counts_as_any_other() -> None:
    status = PodExtendedResourceClaimStatus(resource_claim_name="web-extended-resources-x")
    web = pod("web")
    web = replace(web, status=replace(web.status, extended_resource_claim_status=status))
    assert verdicts([claim("web-extended-resources-x", result(PART), users=["web"])], [web]) == {
        "default/web": HolderVerdict.EVICT
    }


def test_pods_of_a_claim_that_is_reserved_for_their_group_hold_the_card() -> None:
    group = ResourceClaimConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="uid-g")
    shared = claim("c", result(PART))
    shared = replace(shared, status=replace(shared.status, reserved_for=(group,)))
    pods = [pod("member", "c"), pod("elsewhere", "c", node="node-2"), pod("same-name", "c", namespace="other")]
    assert verdicts([shared], pods) == {"default/member": HolderVerdict.SHARED_CLAIM}


def test_a_claim_that_no_pod_uses_and_a_pod_that_is_not_there_are_going() -> None:
    claims = [claim("unused", result(PART)), claim("gone", result("gpu-1"), users=["ghost"])]
    assert verdicts(claims, []) == {"default/ghost": HolderVerdict.ENDING, "default/unused": HolderVerdict.ENDING}


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    again = pod("web", "c")
    again = replace(again, metadata=replace(again.metadata, uid="uid-new"))
    found = find_holders(CARD, [claim("c", result(PART), users=["web"])], [again], evicts_bare=False)
    assert [(each.uid, each.verdict) for each in found] == [("uid-web", HolderVerdict.ENDING)]


def test_who_ends_slowly_is_named_with_its_finalizers() -> None:
    slow = pod("web", "c", is_terminating=True, finalizers=("example.com/backup",))
    [found] = find_holders(CARD, [claim("c", result(PART), users=["web"])], [slow], evicts_bare=False)
    assert found.message == "it is being deleted, and waits for its finalizers: example.com/backup"


# --- compared with a judge --------------------------------------------------------------------------------------------

DEVICES = ("gpu-0", "gpu-1", "gpu-10", "gpu-0-1g-10gb-at-1", "gpu-1-1g-10gb-at-0", "gpu-1-2g-20gb-at-2-shared")
NAMES = ("a", "b", "c", "d")
OWNERS: tuple[OwnerReference | None, ...] = (OWNER, None, replace(OWNER, kind="Node"))


@st.composite
def results(draw: st.DrawFn) -> Any:
    return result(
        draw(st.sampled_from(DEVICES)),
        pool=draw(st.sampled_from(["node-1/gpu", "node-1/gpu", "node-2/gpu"])),
        driver=draw(st.sampled_from([GPU.driver, GPU.driver, "gpu.example.com"])),
        admin=draw(st.sampled_from([False, False, False, True])),
        tolerates=draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[ResourceClaim], list[Pod]]:
    namespaces = st.sampled_from(["default", "default", "kube-system"])
    marks = st.sampled_from([{}, {}, {}, {"kerf.dev/do-not-evict": "true"}, {"kerf.dev/do-not-evict": "false"}])
    pods = [
        pod(
            name,
            owner=draw(st.sampled_from(OWNERS)),
            namespace=draw(namespaces),
            phase=draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded"])),
            is_terminating=draw(st.sampled_from([False, False, True])),
            labels=draw(marks),
            annotations=draw(marks),
        )
        for name in NAMES
        if draw(st.booleans())
    ]
    claims = []
    for number in range(draw(st.integers(0, 5))):
        namespace = draw(namespaces)
        users = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        its = draw(st.lists(results(), max_size=3))
        made = claim(f"claim-{number}", *its, users=users, namespace=namespace, is_own=draw(st.booleans()))
        if not its:
            made = replace(made, status=ResourceClaimStatus())
        claims.append(made)
    return claims, pods


def judge(claims: list[ResourceClaim], pods: list[Pod], *, evicts_bare: bool) -> dict[tuple[Any, str], HolderVerdict]:
    """Say by the letter of the rules who holds the card and what becomes of it, looking at each pod by itself."""
    found: dict[tuple[Any, str], HolderVerdict] = {}
    users = {(one.metadata.namespace, user.name, user.uid) for one in claims for user in one.status.reserved_for}
    for namespace, name, uid in users:
        mine, is_shared = [], False
        for one in claims:
            if one.metadata.namespace == namespace and uid in [user.uid for user in one.status.reserved_for]:
                mine += list_own(one)
                is_owned = uid in [owner.uid for owner in one.metadata.owner_references]
                is_shared |= not is_owned and any(not each.admin_access for each in list_own(one))
        if not mine:
            continue
        present = [each for each in pods if each.metadata.uid == uid]
        key = (ObjectRef(namespace, name), uid)
        if all(each.admin_access for each in mine):
            found[key] = HolderVerdict.ADMIN_ACCESS
        elif not present or present[0].metadata.deletion_timestamp or present[0].status.phase == "Succeeded":
            found[key] = HolderVerdict.ENDING
        else:
            found[key] = judge_pod(present[0], mine, is_shared=is_shared, evicts_bare=evicts_bare)
    for one in claims:
        if not one.status.reserved_for and (own := list_own(one)):
            verdict = HolderVerdict.ADMIN_ACCESS if all(each.admin_access for each in own) else HolderVerdict.ENDING
            found[one.ref, ""] = verdict
    return found


def list_own(one: ResourceClaim) -> list[Any]:
    if one.status.allocation is None:
        return []
    return [
        each
        for each in one.status.allocation.devices.results
        if (each.driver, each.pool) == (GPU.driver, "node-1/gpu")
        and (each.device == "gpu-1" or each.device.startswith("gpu-1-"))
    ]


def judge_pod(one: Pod, mine: list[Any], *, is_shared: bool, evicts_bare: bool) -> HolderVerdict:
    owners = [each.kind for each in one.metadata.owner_references if each.controller]
    if one.metadata.namespace == "kube-system":
        return HolderVerdict.SYSTEM
    if "Node" in owners:
        return HolderVerdict.STATIC
    if "true" in (*one.metadata.labels.values(), *one.metadata.annotations.values()):
        return HolderVerdict.PROTECTED
    if any(each.tolerations for each in mine):
        return HolderVerdict.TOLERATES
    if is_shared:
        return HolderVerdict.SHARED_CLAIM
    return HolderVerdict.EVICT if owners or evicts_bare else HolderVerdict.BARE


@settings(max_examples=10_000 if IS_LONG else 60)
@given(cluster=clusters(), evicts_bare=st.booleans())
def test_holders_are_those_of_the_judge(cluster: tuple[list[ResourceClaim], list[Pod]], evicts_bare: bool) -> None:
    claims, pods = cluster
    found = find_holders(CARD, claims, pods, evicts_bare=evicts_bare)
    told = {(each.pod or each.claims[0], each.uid): each.verdict for each in found}
    assert len(told) == len(found), "each pod once"
    assert told == judge(claims, pods, evicts_bare=evicts_bare)
    assert all(each.message for each in found if each.verdict in STAYING)
