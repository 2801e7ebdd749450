"""The problems of one document of a built-in kind, in the parts that are about devices, and the claims of any kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from kerf_dra.api.core.scheduling import GROUP as SCHEDULING
from kerf_dra.api.core.scheduling import VERSIONS as SCHEDULING_VERSIONS
from kerf_dra.api.errors import Problem
from kerf_dra.api.kerf.validation import quote
from kerf_dra.api.manifests.claim_documents import find_claim_problems, is_claim_document
from kerf_dra.api.manifests.pod_documents import find_entry_problems, find_pod_problems
from kerf_dra.api.model.base import as_mapping


def find_document_problems(body: Mapping[str, Any]) -> list[Problem]:
    """Find every problem of a document; of kinds that have nothing to do with devices there is none."""
    if is_claim_document(body):
        return find_claim_problems(body)
    if str(body.get("apiVersion", "")).partition("/")[0] == SCHEDULING:
        return [*_find_group_problems(body)]
    return [*find_pod_problems(body)]


def _find_group_problems(body: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of a PodGroup, and of a Workload with claims: a controller makes its groups, unseen here."""
    kind, spec = body.get("kind"), as_mapping(body.get("spec"))
    if kind == "PodGroup":
        if str(body.get("apiVersion")).rpartition("/")[2] not in SCHEDULING_VERSIONS:
            known = ", ".join(SCHEDULING_VERSIONS)
            yield Problem("apiVersion", f"{quote(body.get('apiVersion'))} has no PodGroup; {SCHEDULING} has {known}")
        yield from find_entry_problems(spec, "spec")
    for path in find_claim_lists(spec, "spec") if kind != "PodGroup" else ():
        message = f"claims of groups that a {kind} makes are not known before: write the PodGroup with its claims"
        yield Problem(path, message)


def find_claim_lists(value: object, path: str) -> Iterator[str]:
    """Yield the path of each list ``resourceClaims`` below ``value``."""
    if isinstance(value, Mapping):
        for name, held in value.items():
            if name == "resourceClaims" and held:
                yield f"{path}.{name}"
            else:
                yield from find_claim_lists(held, f"{path}.{name}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from find_claim_lists(held, f"{path}[{index}]")
