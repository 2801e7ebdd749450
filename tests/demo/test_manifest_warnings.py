"""What of a user's manifests has no effect is shown once, however many pods have it."""

from pathlib import Path

import pytest

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.demo.display import TextDisplay
from kerf_dra.driver.demo.manifest_warnings import report_warnings
from kerf_dra.driver.demo.manifests import CLASSIC_CHECKS, load_manifests
from kerf_dra.driver.demo.report import Report
from tests.demo.test_manifests import CLASS, POD, STRAY, TEMPLATE, write

CLASSIC_POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: gpu, source: {resourceClaimTemplateName: small}}]
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
"""
CLASSIC_TEMPLATE = """
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: small}
spec: {spec: {resourceClassName: gpu}}
"""
UNUSED = "spec.resourceClaims[0]: no container uses claim gpu"


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def display(shown: list[str]) -> TextDisplay:
    return TextDisplay(shown.append, columns=80)


def test_a_warning_of_several_pods_is_one_and_names_them(
    tmp_path: Path, display: TextDisplay, shown: list[str]
) -> None:
    report = Report()
    manifests = load_manifests([write(tmp_path, CLASS, TEMPLATE, POD, STRAY)])
    of_pods = {"default/web-1": [UNUSED], "default/web-2": [UNUSED, "other"], "default/db": []}
    report_warnings(display, report, manifests, of_pods)
    stray = f"{tmp_path / 'objects.yaml'}: document 4: ResourceClaim stray: no pod uses it, so nothing gets its devices"
    assert report.warnings == [
        stray,
        f"pod default/web-1, default/web-2: {UNUSED}",
        "pod default/web-2: other",
    ]
    assert "".join(shown).count("warning:") == 3


def test_a_note_about_sizes_is_no_warning(tmp_path: Path, display: TextDisplay, shown: list[str]) -> None:
    report = Report()
    manifests = load_manifests([write(tmp_path, CLASS, TEMPLATE, POD)])
    notes = {"default/web-1": ["20Gi is much"], "default/web-2": ["20Gi is much"]}
    report_warnings(display, report, manifests, {}, notes)
    assert (report.warnings, report.notes) == ([], ["pod default/web-1, default/web-2: 20Gi is much"])
    assert "note: pod default/web-1, default/web-2: 20Gi is much" in "".join(shown)


@pytest.mark.parametrize("is_classic", [True, False])
def test_manifests_of_which_every_part_is_used_have_no_warning(
    tmp_path: Path, display: TextDisplay, shown: list[str], is_classic: bool
) -> None:
    documents = (CLASSIC_TEMPLATE, CLASSIC_POD) if is_classic else (CLASS, TEMPLATE, POD)
    manifests = load_manifests([write(tmp_path, *documents)], CLASSIC_CHECKS if is_classic else None)
    found: JsonObject = {}
    report_warnings(display, Report(), manifests, found)
    assert shown == []
