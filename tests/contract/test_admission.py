"""Admission: what a policy makes of a claim, and what an update of a gated pod may change of its node selection."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest
import yaml

from tests.contract.documents import RESOURCE, claim, device_class, exactly, pod, template
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.kerf import DEPLOY

GRADED: Final = ("rank-0", "rank-2", "any")


@pytest.fixture(scope="module")
async def policy(server: Api) -> AsyncIterator[None]:
    """The policy of graded placement, for the classes ``packed`` and ``tight``, but not for ``free``."""
    documents = list(yaml.safe_load_all((DEPLOY / "graded-placement" / "policy.yaml").read_text()))
    for name in ("packed", "tight", "free"):
        labels = {} if name == "free" else {"labels": {"kerf.dev/placement": "Packed"}}
        document = device_class(name)
        documents.append({**document, "metadata": {**document["metadata"], **labels}})
    for document in documents:
        await server.apply(document)

    async def is_in_force() -> bool:
        asked = [await ask(server, "default", exactly("r", name)) for name in ("packed", "tight")]
        return all("firstAvailable" in found for (found,) in asked)

    await eventually("the policy is in force", is_in_force)
    yield
    for document in documents:
        await server.delete(document["apiVersion"], document["kind"], document["metadata"]["name"])


async def ask(server: Api, space: str, *requests: Document, **metadata: Any) -> list[Document]:
    """What the server would store of a claim's requests."""
    document = claim("c", space, *requests)
    document["metadata"] |= metadata
    made = await server.create(document, dryRun="All")
    found: list[Document] = made["spec"]["devices"]["requests"]
    return found


def graded(name: str, device_class: str, **more: Any) -> Document:
    rank = 'device.attributes["gpu.kerf.dev"].lossRank'
    selectors = more.pop("selectors", [])
    added: Sequence[Sequence[str]] = ([f"has({rank}) && {rank} == 0"], [f"has({rank}) && {rank} <= 2"], [])
    alternatives = []
    for level, expressions in zip(GRADED, added, strict=True):
        own = [*selectors, *({"cel": {"expression": each}} for each in expressions)]
        more_of_it = {"allocationMode": "ExactCount", "count": 1, **more, **({"selectors": own} if own else {})}
        alternatives.append({"name": level, "deviceClassName": device_class, **more_of_it})
    return {"name": name, "firstAvailable": alternatives}


def plain(name: str, device_class: str, **more: Any) -> Document:
    return exactly(name, device_class, **{"allocationMode": "ExactCount", "count": 1, **more})


SELECTORS: Final = [{"cel": {"expression": "true"}}]
ALL: Final = {"name": "r", "exactly": {"deviceClassName": "packed", "allocationMode": "All"}}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([exactly("r", "packed")], [graded("r", "packed")]),
        ([exactly("r", "packed", count=2, selectors=SELECTORS)], [graded("r", "packed", count=2, selectors=SELECTORS)]),
        (
            [exactly("a", "free"), exactly("b", "tight"), exactly("c", "packed", adminAccess=False)],
            [plain("a", "free"), graded("b", "tight"), graded("c", "packed")],
        ),
        ([ALL, exactly("s", "tight")], [ALL, graded("s", "tight")]),
        ([plain("r", "packed", selectors=SELECTORS * 32)], [plain("r", "packed", selectors=SELECTORS * 32)]),
        ([exactly("r", "not-there")], [plain("r", "not-there")]),
        ([exactly(name, "tight") for name in "abc"], [plain(name, "tight") for name in "abc"]),
    ],
    ids=["one", "with selectors", "several", "all devices", "no room for a selector", "no class", "three"],
)
@pytest.mark.usefixtures("policy")
async def test_the_policy_grades_what_can_be_graded(
    server: Api, space: str, requests: list[Document], expected: list[Document]
) -> None:
    assert await ask(server, space, *requests) == expected


@pytest.mark.usefixtures("policy")
async def test_the_policy_leaves_claims_of_extended_resources_and_templates_alone(server: Api, space: str) -> None:
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert await ask(server, space, exactly("r", "packed"), annotations=annotations) == [plain("r", "packed")]
    made = await server.create(template("t", space, exactly("r", "packed")), dryRun="All")
    assert made["spec"]["spec"]["devices"]["requests"] == [plain("r", "packed")]
    assert (await server.get(RESOURCE, "DeviceClass", "packed"))["spec"] == {}


TERM: Final = {"key": "zone", "operator": "In", "values": ["a", "b"]}
MORE: Final = {"key": "rack", "operator": "Exists"}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = {"weight": 1, "preference": {"matchExpressions": [MORE]}}
APART: Final = {REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}
FIXED: Final = "pod updates may not change fields other than"


def affinity(*terms: Document, **more: Any) -> Document:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}, **more}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, ""),
        ({"nodeSelector": {"pool": "other"}}, "only additions to spec.nodeSelector are allowed"),
        ({"nodeSelector": None}, "only additions to spec.nodeSelector are allowed"),
        (affinity({"matchExpressions": [TERM, MORE]}), ""),
        (
            affinity({"matchExpressions": [TERM], "matchFields": [{**TERM, "key": "metadata.name", "values": ["n"]}]}),
            "",
        ),
        (affinity({"matchExpressions": [TERM]}, preferredDuringSchedulingIgnoredDuringExecution=[PREFERRED]), ""),
        (affinity({"matchExpressions": [MORE, TERM]}), "only additions are allowed (no mutations or deletions)"),
        (affinity({"matchExpressions": [MORE]}), "only additions are allowed (no mutations or deletions)"),
        (affinity({"matchExpressions": [TERM]}, {"matchExpressions": [MORE]}), "no additions/deletions to non-empty"),
        ({"affinity": {"nodeAffinity": None}}, "no additions/deletions to non-empty NodeSelectorTerms list"),
        ({"affinity": None}, "no additions/deletions to non-empty NodeSelectorTerms list"),
        ({"affinity": None}, FIXED),
        ({"affinity": {"podAntiAffinity": None}}, FIXED),
        ({"affinity": {"podAffinity": APART}}, FIXED),
        ({"schedulerName": "other"}, FIXED),
    ],
    ids=str,
)
async def test_the_node_selection_of_a_gated_pod_only_becomes_narrower(
    server: Api, space: str, change: Document, said: str
) -> None:
    """A pod that a queue holds back would else get nodes, or neighbors, that its author has ruled out."""
    document = pod("p", space)
    document["spec"] |= {
        "serviceAccountName": "default",
        "schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}],
        "nodeSelector": {"pool": "gpu"},
        "affinity": {**affinity({"matchExpressions": [TERM]})["affinity"], "podAntiAffinity": APART},
    }
    await server.create(document)
    refused = ""
    try:
        await server.patch("v1", "Pod", "p", {"spec": change}, space)
    except StatusError as error:
        refused = f"{error.code} {error.message}"
    assert refused.startswith("422 ") == bool(said)
    assert said in refused


async def test_a_gated_pod_without_node_selection_may_get_any(server: Api, space: str) -> None:
    document = pod("p", space)
    document["spec"] |= {"serviceAccountName": "default", "schedulingGates": [{"name": "example.com/a"}]}
    await server.create(document)
    change = {**affinity({"matchExpressions": [TERM]}, {"matchExpressions": [MORE]}), "nodeSelector": {"pool": "gpu"}}
    changed = await server.patch("v1", "Pod", "p", {"spec": change}, space)
    assert changed["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert changed["spec"]["affinity"] == change["affinity"]
