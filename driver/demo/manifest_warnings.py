"""Warnings of a demo: what of a user's manifests is legal and has no effect."""

from collections.abc import Iterable, Mapping, Sequence

from kerf_dra.api.model.names import list_names
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.manifests import Manifest, find_ineffective_objects
from kerf_dra.driver.demo.report import Report


def report_warnings(
    display: Display, report: Report, manifests: Sequence[Manifest], of_pods: Mapping[str, Iterable[str]]
) -> None:
    """Show what of ``manifests`` has no effect, and add it to the report; ``of_pods`` has sentences about each pod.

    What is the same of several pods is one warning.
    """
    pods: dict[str, list[str]] = {}
    for ref, texts in of_pods.items():
        for text in texts:
            pods.setdefault(text, []).append(ref)
    report.warnings += find_ineffective_objects(manifests)
    report.warnings += (f"pod {list_names(refs)}: {text}" for text, refs in pods.items())
    for warning in report.warnings:
        display.say("")
        display.say(f"warning: {warning}")
