"""What pods and PodGroups say of devices is checked, and what Kerf does not read of pods is left to others."""

from difflib import get_close_matches
from typing import Any

import kubernetes.client
import pytest

from kerf_dra.api.core.v1 import PodSpec
from kerf_dra.api.manifests.documents import find_document_problems
from kerf_dra.api.manifests.pod_documents import SPEC_PATHS

Document = dict[str, Any]

GOOD = {
    "resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "y"}],
    "containers": [{"name": "c", "resources": {"claims": [{"name": "a"}, {"name": "b", "request": "r"}]}}],
    "hostNetwork": True,
    "field-of-a-later-release": {},
}


def pod(version: str = "v1", kind: str = "Pod", **spec: Any) -> Document:
    fields: Document = {**GOOD, **spec}
    for field in reversed(SPEC_PATHS[version, kind][1:]):
        fields = {field: fields}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "spec": fields}


def problems(body: Document) -> list[str]:
    return [str(problem) for problem in find_document_problems(body)]


@pytest.mark.parametrize(("version", "kind"), SPEC_PATHS)
def test_a_kind_that_stands_for_pods_is_checked_where_its_pods_are(version: str, kind: str) -> None:
    assert problems(pod(version, kind)) == []
    path = ".".join(SPEC_PATHS[version, kind])
    bad = pod(version, kind, resourceClaims=[{"name": "a", "resourceClaim": "x"}])
    assert problems(bad) == [
        f'{path}.resourceClaims[0].resourceClaim: unknown field; did you mean "resourceClaimName"?'
    ]


BAD = {
    "the form of Kubernetes 1.30": (
        {"resourceClaims": [{"name": "a", "source": {"resourceClaimTemplateName": "t"}}]},
        [
            (
                "spec.resourceClaims[0].source: unknown field; Kubernetes 1.31 and later have its fields in the entry "
                "itself: write resourceClaimTemplateName: t beside name"
            )
        ],
    ),
    "an entry without a claim, and one with two": (
        {"resourceClaims": [{"name": "a"}, {"name": "b", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]},
        [
            "spec.resourceClaims[0]: needs resourceClaimName or resourceClaimTemplateName: set one of the two",
            "spec.resourceClaims[1]: has both resourceClaimName and resourceClaimTemplateName: set one of the two",
        ],
    ),
    "misspelt fields of containers": (
        {
            "initContainers": [{"name": "i", "resources": {"claim": [{"name": "a"}]}}],
            "containers": [{"name": "c", "resources": {"claims": [{"nam": "a"}]}}],
        },
        [
            'spec.initContainers[0].resources.claim: unknown field; did you mean "claims"?',
            'spec.containers[0].resources.claims[0].nam: unknown field; did you mean "name"?',
            "spec.containers[0].resources.claims[0].name: is required",
        ],
    ),
    "a misspelt field without which the answer would be wrong": (
        {"nodeSelecter": {"a": "b"}, "toleration": []},
        [
            'spec.nodeSelecter: unknown field; did you mean "nodeSelector"?',
            'spec.toleration: unknown field; did you mean "tolerations"?',
        ],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), BAD.values(), ids=BAD.keys())
def test_every_problem_of_a_pod_is_found_with_its_path(spec: Document, expected: list[str]) -> None:
    assert problems(pod(**spec)) == expected


def test_no_field_of_a_pod_is_taken_for_a_misspelt_one() -> None:
    known = PodSpec.__struct_encode_fields__
    every = {field.serialization_alias or name for name, field in kubernetes.client.V1PodSpec.model_fields.items()}
    assert len(every - {*known}) > 20
    assert problems(pod(**dict.fromkeys(every - {*known}, "x"))) == []
    assert not [name for name in every - {*known} if get_close_matches(name, known, n=1, cutoff=0.75)], "some room"


def group(version: str, kind: str = "PodGroup", **spec: Any) -> Document:
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": {"name": "g"}, "spec": spec}


def test_the_claims_of_a_pod_group_are_checked_as_those_of_a_pod() -> None:
    assert problems(group("v1beta1", resourceClaims=GOOD["resourceClaims"])) == []
    assert problems(group("v1beta1", resourceClaims=[{"name": "a"}])) == [
        "spec.resourceClaims[0]: needs resourceClaimName or resourceClaimTemplateName: set one of the two"
    ]
    assert problems(group("v1")) == [
        'apiVersion: "scheduling.k8s.io/v1" has no PodGroup; scheduling.k8s.io has v1beta1, v1alpha3, v1alpha2'
    ]


def test_claims_of_groups_that_a_controller_makes_are_refused_by_name() -> None:
    """They were passed over as documents that have nothing to do with devices."""
    templates = [{"name": "a"}, {"name": "b", "resourceClaims": GOOD["resourceClaims"]}]
    assert problems(group("v1beta1", "Workload", podGroupTemplates=templates)) == [
        (
            "spec.podGroupTemplates[1].resourceClaims: claims of groups that a Workload makes are not known before: "
            "write the PodGroup with its claims"
        )
    ]
    assert problems(group("v1beta1", "Workload", podGroupTemplates=templates[:1])) == []
    assert problems(group("v1", "PriorityClass")) == []
