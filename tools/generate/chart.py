"""Generates the templates of the chart in ``deploy/chart/kerf`` whose contents Kerf itself prints, its CRDs, and its
copies of what is of use without Helm, too: a chart has no files from outside.

A test generates them into another folder and compares.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kerf_dra.api.resource.registry import VERSIONS
from kerf_dra.driver.cli.catalog.families import format_device_classes, format_policies
from kerf_dra.driver.cli.catalog.rbac import NAMESPACE, build_early_loading, build_permissions
from kerf_dra.driver.families.registry import BUILT_IN
from tools.generate import crds

ROOT: Final = Path(__file__).parents[2]
CHART: Final = Path("deploy/chart/kerf")
TEMPLATES: Final = CHART / "templates"
MONITORING: Final = Path("deploy/monitoring")

_DRIVERS: Final = [str(family.driver) for family in BUILT_IN]
_KEEP: Final = "    helm.sh/resource-policy: keep # with a definition all its objects would go\n"
_VERSION: Final = """\
{{ if semverCompare ">=1.34-0" .Capabilities.KubeVersion.Version }}v1\
{{ else if semverCompare ">=1.33-0" .Capabilities.KubeVersion.Version }}v1beta2\
{{ else }}v1beta1{{ end }}"""
"""The version of ``resource.k8s.io`` that a release serves where DRA is enabled (docs/compatibility.md)."""


def generate(target: Path) -> list[Path]:
    """Write the templates below ``target`` and return their paths relative to it."""
    texts = {TEMPLATES / name: text for name, text in (*_templates(), *_definitions(target))}
    texts |= {CHART / "monitoring" / file.name: file.read_text("utf-8") for file in (ROOT / MONITORING).iterdir()}
    for path, text in texts.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
    return [*texts]


def _templates() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each template."""
    quoted = ", ".join(f'"{driver}"' for driver in _DRIVERS)
    permissions = _in_any_namespace(build_permissions())
    permissions = permissions.replace(f"[{quoted}]", '["{{ join "\\", \\"" .Values.drivers }}"]')
    yield "permissions.yaml", permissions.replace(", ".join(_DRIVERS), '{{ join ", " .Values.drivers }}')
    yield "early-loading.yaml", _only_if(".Values.earlyLoading.enabled", _in_any_namespace(build_early_loading()))
    yield "parameters.yaml", _only_if(".Values.parameterPolicies.create", format_policies(BUILT_IN))
    classes = format_device_classes(BUILT_IN, VERSIONS[0]).replace(
        "resource.k8s.io/v1\n", f"resource.k8s.io/{_VERSION}\n"
    )
    is_known = 'semverCompare ">=1.32-0" .Capabilities.KubeVersion.Version'
    yield "device-classes.yaml", _only_if(f"and .Values.deviceClasses.create ({is_known})", classes)


def _definitions(target: Path) -> Iterator[tuple[str, str]]:
    """Yield the CRDs: they are templates, so that an upgrade changes them, and stay when the release goes."""
    for path in crds.generate(target):
        text = (target / path).read_text(encoding="utf-8")
        head, metadata, rest = text.partition("metadata:\n")
        yield f"crds/{path.name}", _only_if(".Values.crds.install", f"{head}{metadata}  annotations:\n{_KEEP}{rest}")


def _in_any_namespace(text: str) -> str:
    return text.replace(NAMESPACE, "{{ .Release.Namespace }}")


def _only_if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} -}}}}\n{text.rstrip()}\n{{{{- end }}}}\n"
