"""An anonymized dump gives the same results under pseudonyms."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import Event, ObjectReference, Taint
from kerf_dra.api.model.claims import DeviceConstraint
from kerf_dra.api.model.metadata import Condition, ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.cel.library import FUNCTIONS
from kerf_dra.driver.diagnostics.anonymization import anonymize
from kerf_dra.driver.diagnostics.anonymization.pseudonyms import Pseudonyms, SnapshotWords, is_public
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.devices.runtime_messages import find_device_failure
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump, redact
from kerf_dra.driver.diagnostics.explain.events.kubelet_messages import classify_message, is_runtime_failure
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.explain.workload_pods import explain_workload
from kerf_dra.driver.diagnostics.frag import measure_fragmentation
from kerf_dra.driver.diagnostics.plan import plan_workloads
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    node,
    parse,
    placed_pod,
    pod,
    prepare_failure,
    replace,
    request,
    slices,
    state,
)
from tests.fakes.kubelet_texts import DEVICE_TEXTS, KILL_TEXTS, PREPARE_TEXTS

DOMAIN = 'device.attributes["gpu.kerf.dev"]'
NODES = ("zebra", "acme-gpu-7", "ip-10-1-2-3.eu-west-1.compute.internal")
COMMENT = "// hunter2"
SELECTORS = {
    "equal": f'{DOMAIN}.uuid == "GPU-zebra-0"',
    "not-equal": f'{DOMAIN}.uuid != "GPU-zebra-0" {COMMENT}',
    "in-list": f'{DOMAIN}.uuid in ["GPU-acme-gpu-7-0", "hunter2"]',
    "of-node": f'{DOMAIN}["node"] == "acme-gpu-7"',
    "regex": f"{DOMAIN}.uuid.lowerAscii().matches('^gpu-zebra.*$')",
    "product": f"{DOMAIN}.productName.lowerAscii().matches('^.*h100.*$')",
    "quantity": 'device.capacity["gpu.kerf.dev"].memory.isGreaterThan(quantity("81604378624"))',
    "version": f'{DOMAIN}.driverVersion.isGreaterThan(semver("550.1.0"))',
    "bound": f'cel.bind(hunter2, {DOMAIN}, hunter2.cut == "whole")',
    "unknown-name": f'{DOMAIN}.hunter2 == "x"',
    "broken": f'{DOMAIN}.uuid == "hunter2',
}


def cluster() -> ClusterState:
    """Names of all kinds, holders, selectors, taints, labels, and a pod that cannot start."""
    nodes = (
        node(NODES[0], labels={"acme.example/team": "hunter2"}),
        node(NODES[1], labels={"kubernetes.io/hostname": NODES[1]}, taints=[Taint(key="k", effect="NoSchedule")]),
        node(NODES[2], labels={"acme.example/team": "falcon"}, unschedulable=True),
    )
    empty = state(*nodes, published=[each for name in NODES for each in slices(name)])
    held = allocate_claims(empty, *(claim(f"hunter2-{number}", "3g-40gb") for number in range(2)))
    whole = claim("whole-card", request("falcon", "whole"), constraints=[DeviceConstraint(match_attribute="x/hunter2")])
    asked = [claim(name, request("r", "whole", selector)) for name, selector in SELECTORS.items()]
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="falcon-web-5d4f8", uid="u", controller=True)
    web = pod("falcon-web-5d4f8-xyz", "whole-card", node_selector={"acme.example/team": "falcon"})
    labels = {"pod-template-hash": "5d4f8"}
    web = replace(web, metadata=replace(web.metadata, owner_references=(owner,), labels=labels))
    begun = placed_pod("starter", "hunter2-0", on=NODES[0], conditions=(Condition(type="PodScheduled", status="True"),))
    said = "claim default/hunter2-0: gpu-0-3g-40gb-at-0: in use outside of Kerf: pid 4711, run by hunter2"
    return replace(
        held,
        claims=(*held.claims, whole, *asked),
        pods=(web, begun),
        events=(prepare_failure("starter", said),),
        gathered_at="2026-11-21T08:00:00Z",
        kubernetes="1.37",
    )


STATE = redact(cluster())
ANONYMOUS, MEANINGS = anonymize(STATE)


CEL = frozenset({"condition", "has"})
"""The fields of reports that quote parts of CEL, and values."""
PSEUDONYM = re.compile(r"(?:node-|name-)?xz\d+|(?<!\w)1\d{3}(?!\w)", re.IGNORECASE)
PSEUDONYM_OF = {text: pseudonym for pseudonym, text in sorted(MEANINGS.items(), reverse=True)}


def restore(text: str) -> str:
    """Return what a text with pseudonyms stands for."""

    def meaning(match: re.Match[str]) -> str:
        known = MEANINGS.get(match[0].lower(), match[0])
        return known.upper() if match[0].isupper() else known

    return PSEUDONYM.sub(meaning, text)


def rename(name: str) -> str:
    return PSEUDONYM_OF.get(name, name)


def facts(report: Any, name: Callable[[str], str] = str) -> Any:
    """The fields of a report; ``name`` replaces their texts."""
    match msgspec.to_builtins(report):
        case dict() as fields:
            return {name(key): facts(each, name) for key, each in fields.items() if key not in CEL}
        case list() | tuple() as items:
            return [facts(each, name) for each in items]
        case str() as text:
            return " ".join(name(text).replace(COMMENT, "").split())
        case value:
            return value


def refs(objects: Any) -> list[ObjectRef]:
    return [each.ref for each in objects]


def renamed(ref: ObjectRef) -> ObjectRef:
    return ObjectRef(rename(ref.namespace), rename(ref.name))


@pytest.mark.parametrize("ref", refs(STATE.claims), ids=str)
def test_why_says_the_same_of_a_claim(ref: ObjectRef) -> None:
    expected = facts(explain_claim(ClusterIndex(STATE), ref))
    assert facts(explain_claim(ClusterIndex(ANONYMOUS), renamed(ref)), restore) == expected


@pytest.mark.parametrize("ref", refs(STATE.pods), ids=str)
def test_why_says_the_same_of_a_pod(ref: ObjectRef) -> None:
    expected = facts(explain_pod(ClusterIndex(STATE), ref))
    assert facts(explain_pod(ClusterIndex(ANONYMOUS), renamed(ref)), restore) == expected


def test_a_deployment_is_found_by_its_pseudonym() -> None:
    report = explain_workload(ClusterIndex(ANONYMOUS), "Deployment", renamed(ObjectRef("default", "falcon-web")))
    assert [each.subject.name for each in report.pods] == [rename("falcon-web-5d4f8-xyz")]


def test_plan_takes_the_same_nodes_and_devices() -> None:
    reports = []
    for each, name in ((STATE, str), (ANONYMOUS, restore)):
        index = ClusterIndex(each)
        request_ = {"name": "r", "exactly": {"deviceClassName": "1g-10gb"}}
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "new"},
            "spec": {"devices": {"requests": [request_]}},
        }
        reports.append(facts(plan_workloads(index, parse(index, document).workloads, copies=3), name))
    assert reports[0]["placed"]
    assert reports[0] == reports[1]


def test_frag_counts_the_same() -> None:
    reports = [
        facts(measure_fragmentation(ClusterIndex(each)), name) for each, name in ((STATE, str), (ANONYMOUS, restore))
    ]
    assert reports[0]["cards"]
    assert reports[0] == reports[1]


def test_nothing_of_users_is_in_it_and_it_reads_back() -> None:
    data = encode_dump(ANONYMOUS)
    for word in ("hunter2", "falcon", "acme", "zebra", "10-1-2-3", "west", "5d4f8", "starter", "4711", "xyz"):
        assert word not in data.decode().lower(), word
    assert decode_dump(data, "dump.json") == ANONYMOUS


def test_sizes_profiles_drivers_and_causes_stay() -> None:
    text = encode_dump(ANONYMOUS).decode()
    for word in ("gpu-0-3g-40gb-at-0", "NVIDIA H100 80GB HBM3", "gpu.kerf.dev", "in use outside of Kerf", "1.37"):
        assert word in text, word


def test_a_pseudonym_is_told_to_who_asks() -> None:
    assert {MEANINGS[rename(name)] for name in NODES} == set(NODES)
    assert MEANINGS[rename("hunter2")] == "hunter2"
    assert not set(MEANINGS) & set(MEANINGS.values())


TEXTS = st.text("aAbB1290-._/: '\"\\\n\u00e9\u0130", max_size=12)


@given(st.lists(TEXTS, max_size=8), st.lists(st.from_regex(r"[a-z0-9]+(-[a-z0-9]+){0,2}", fullmatch=True), max_size=3))
def test_two_texts_have_one_pseudonym_only_if_they_are_one(texts: list[str], names: list[str]) -> None:
    found = SnapshotWords(
        kept=frozenset(), nodes=frozenset(names), names=frozenset(), derived=frozenset(), texts=frozenset(texts + names)
    )
    pseudonyms = Pseudonyms(found)
    assert len({pseudonyms.replace(text) for text in texts}) == len(set(texts))
    assert [pseudonyms.replace(name) for name in sorted(set(names))] == sorted(map(pseudonyms.replace, set(names)))


@given(TEXTS)
def test_any_expression_is_replaced_without_an_error(expression: str) -> None:
    asked = claim("c", request("r", "whole", expression))
    (kept,) = anonymize(ClusterState(claims=(asked,)))[0].claims
    assert len(kept.spec.devices.requests) == 1


def test_every_function_of_cel_and_every_word_by_which_a_cause_is_known_is_public() -> None:
    assert {row.name.removeprefix("__") for row in FUNCTIONS if not is_public(row.name.removeprefix("__"))} == {
        "equals_text"  # Kerf's own, in no expression of anybody
    }


@pytest.mark.parametrize(
    "message",
    [text for text, _ in (*PREPARE_TEXTS.values(), *DEVICE_TEXTS.values(), *KILL_TEXTS.values())],
)
def test_messages_of_kubelets_and_runtimes_keep_the_words_by_which_they_are_recognized(message: str) -> None:
    texts = frozenset({message})
    words = Pseudonyms(
        SnapshotWords(kept=frozenset(), nodes=frozenset(), names=frozenset(), derived=frozenset(), texts=texts)
    )
    anonymous = words.replace(message)
    assert classify_message(anonymous) == classify_message(message)
    assert find_device_failure(anonymous) == find_device_failure(message)
    assert is_runtime_failure(anonymous) == is_runtime_failure(message)


def test_events_and_labels_without_objects_are_replaced() -> None:
    event = Event(
        metadata=ObjectMeta(name="x"),
        involved_object=ObjectReference(kind="Pod", namespace="gone", name="gone-pod", uid="u"),
        reason="FailedKillPod",
        message="pod gone/gone-pod at 10.1.2.3: /var/lib/hunter2",
    )
    (kept,) = anonymize(redact(ClusterState(events=(event,))))[0].events
    assert kept.reason == "FailedKillPod"
    assert kept.message.startswith("pod name-xz")
    assert not {"gone", "10.1", "hunter2", "var"} & set(kept.message.replace("/", " ").split())
