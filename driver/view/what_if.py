"""What manifests that a person has pasted would get: the answer of ``kerf plan``, and the cards with it.

Nothing is created. The work is bounded by the size of the text, by the pods that it asks for, and by the deadline of
each search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.errors import InvalidDocumentError, KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.controller.planned_classes import compile_classes
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.manifests.documents import find_problems, place_documents
from kerf_dra.driver.diagnostics.manifests.workload import read_workloads
from kerf_dra.driver.diagnostics.plan import PLANNED, PlanReport, find_planned, plan_workloads
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_manifests

MOST_COPIES: Final = 1000
"""The most pods that are placed: as many as a plan counts of what would still fit."""
_SOURCE: Final = "manifest"
_PASSED_OVER: Final = 6
"""Documents without devices that are named where there are no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The answer to a manifest."""

    problems: tuple[str, ...] = ()
    """What is wrong with the manifest; then nothing else is known."""
    report: PlanReport | None = None
    pictures: tuple[CardPicture, ...] = ()
    """The cards on which something would be placed, with what is there already."""


def ask_what_if(cluster: ClusterIndex, text: str, *, namespace: str, copies: int) -> WhatIf:
    """Return what ``copies`` of the manifests in ``text`` would get, those without a namespace in ``namespace``."""
    try:
        documents = [*place_documents(_SOURCE, parse_manifests(text))]
        if problems := tuple(find_problems(documents)):
            return WhatIf(problems=problems)
        return _plan(cluster, [each.body for each in documents], namespace, copies)
    except InvalidDocumentError as error:
        return WhatIf(problems=tuple(f"{error.subject}: {problem}" for problem in error.problems))
    except (KerfError, NotYamlError) as error:
        return WhatIf(problems=(f"{_SOURCE}: {error}",))


def _plan(cluster: ClusterIndex, bodies: Sequence[JsonObject], namespace: str, copies: int) -> WhatIf:
    manifests = read_workloads(cluster, bodies, namespace=namespace, compile_classes=compile_classes)
    if not manifests.workloads:
        over = list_names(manifests.passed_over, _PASSED_OVER)
        passed_over = f"; passed over: {over}" if over else ""
        return WhatIf(problems=(f"asks for nothing: there is no pod, claim or claim template{passed_over}",))
    asked = copies * sum(each.replicas for each in manifests.workloads)
    if asked > MOST_COPIES:
        return WhatIf(problems=(f"asks for {asked} copies; at most {MOST_COPIES} are tried: kerf plan tries more",))
    cluster = cluster.with_classes(manifests.classes)
    report = plan_workloads(
        cluster,
        manifests.workloads,
        copies=copies,
        placements=manifests.placements,
        passed_over=manifests.passed_over,
        warnings=manifests.warnings,
    )
    planned = find_planned(report.placed)
    pictures = cluster.build_pictures([(id_.driver, id_.pool) for id_ in planned], planned)
    shown = tuple(each for each in pictures if any(holder.startswith(PLANNED) for holder in each.holders))
    return WhatIf(report=report, pictures=shown)
