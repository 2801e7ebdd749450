"""The fields of pods' documents that are about devices: the claims that pods and their containers name.

Kerf knows no other fields of pods. Of a field that it does not know it reports one that is nearly the name of a field
that it reads, because without that field an answer would be wrong. Example: ``source``, which has the name of a claim
until Kubernetes 1.30, has the problem ``spec.resourceClaims[0].source: unknown field; ...``.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from kerf_dra.api.core.v1 import ContainerClaim, PodSpec
from kerf_dra.api.errors import Problem
from kerf_dra.api.kerf.validation import check_document, show_name, suggest
from kerf_dra.api.model.base import Value, as_list, as_mapping

SPEC_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        ("v1", "Pod"): ("spec",),
        ("apps/v1", "Deployment"): ("spec", "template", "spec"),
        ("apps/v1", "ReplicaSet"): ("spec", "template", "spec"),
        ("apps/v1", "StatefulSet"): ("spec", "template", "spec"),
        ("batch/v1", "Job"): ("spec", "template", "spec"),
    }
)
"""The kinds that stand for pods, by version and kind: the fields that lead to the spec of their pods."""

_CLAIM_NAMES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_RESOURCES: Final = ("limits", "requests", "claims")
_ALIKE: Final = 0.85
"""How alike a misspelt field is to the right one (``difflib``): no field of a pod is so like one that Kerf reads."""


class _PodClaim(Value):
    """An entry of ``spec.resourceClaims`` since Kubernetes 1.31."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


def find_pod_problems(body: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every problem of what a document's pods say of devices; nothing for kinds that stand for no pods."""
    path = SPEC_PATHS.get((str(body.get("apiVersion")), str(body.get("kind"))), ())
    spec: Mapping[str, Any] = body
    for field in path:
        spec = as_mapping(spec.get(field))
    where = ".".join(path)
    if path:
        yield from _find_misspelt_fields(spec, where)
        yield from find_entry_problems(spec, where)
    for field in ("initContainers", "containers") if path else ():
        for index, container in enumerate(as_list(spec.get(field))):
            yield from _find_resource_problems(as_mapping(container).get("resources"), f"{where}.{field}[{index}]")


def find_entry_problems(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield every problem of the entries of ``resourceClaims``, which pods and PodGroups have in one form."""
    for index, entry in enumerate(as_list(spec.get("resourceClaims"))):
        where = f"{path}.resourceClaims[{index}]"
        problems = check_document(entry, _PodClaim, where, is_strict=True).problems
        source = f"{where}.source"
        yield from (_explain_source(each, entry) if each.path == source else each for each in problems)
        if not problems:
            given = [name for name in _CLAIM_NAMES if entry.get(name)]
            if len(given) != 1:
                fault = f"has both {' and '.join(given)}" if given else f"needs {' or '.join(_CLAIM_NAMES)}"
                yield Problem(where, f"{fault}: set one of the two")


def _explain_source(problem: Problem, entry: Mapping[str, Any]) -> Problem:
    names = {name: value for name, value in as_mapping(entry.get("source")).items() if name in _CLAIM_NAMES}
    fields = ", ".join(f"{name}: {show_name(value)}" for name, value in names.items()) or "resourceClaimTemplateName"
    message = (
        f"unknown field; Kubernetes 1.31 and later have its fields in the entry itself: write {fields} beside name"
    )
    return Problem(problem.path, message)


def _find_misspelt_fields(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    known = PodSpec.__struct_encode_fields__
    for name in spec:
        if name not in known and (close := get_close_matches(str(name), known, n=1, cutoff=_ALIKE)):
            yield Problem(f"{path}.{show_name(name)}", f'unknown field; did you mean "{close[0]}"?')


def _find_resource_problems(resources: object, path: str) -> Iterator[Problem]:
    for name in as_mapping(resources):
        if name not in _RESOURCES:
            message = f"unknown field; {suggest(str(name), _RESOURCES)}"
            yield Problem(f"{path}.resources.{show_name(name)}", message)
    for index, used in enumerate(as_list(as_mapping(resources).get("claims"))):
        where = f"{path}.resources.claims[{index}]"
        yield from check_document(used, ContainerClaim, where, is_strict=True).problems
