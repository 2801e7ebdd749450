"""Warnings of a demo: what of a user's manifests is legal and has no effect."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kerf_dra.api.model.names import list_names
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.manifests import Manifest, find_ineffective_objects
from kerf_dra.driver.demo.report import Report

_NONE: Final[Mapping[str, Iterable[str]]] = MappingProxyType({})


def report_warnings(
    display: Display,
    report: Report,
    manifests: Sequence[Manifest],
    of_pods: Mapping[str, Iterable[str]],
    notes: Mapping[str, Iterable[str]] = _NONE,
) -> None:
    """Show what of ``manifests`` has no effect, and add it to the report; ``of_pods`` has sentences about each pod.

    ``notes`` has sentences about the sizes that each pod gets. What is the same of several pods is one sentence.
    """
    report.warnings += find_ineffective_objects(manifests)
    report.warnings += _join_pods(of_pods)
    report.notes += _join_pods(notes)
    for text in (*(f"warning: {each}" for each in report.warnings), *(f"note: {each}" for each in report.notes)):
        display.say("")
        display.say(text)


def _join_pods(of_pods: Mapping[str, Iterable[str]]) -> Iterator[str]:
    pods: dict[str, list[str]] = {}
    for ref, texts in of_pods.items():
        for text in texts:
            pods.setdefault(text, []).append(ref)
    yield from (f"pod {list_names(refs)}: {text}" for text, refs in pods.items())
