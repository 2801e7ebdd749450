"""The chart as Helm renders it, and the manifests of ``deploy/`` that are rendered from it.

``python -m tools.helm`` writes these manifests; a test renders them again and compares.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tools.realcluster.builds import build_helm

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "chart" / "kerf"
PROFILES: Final = CHART / "profiles"
NAMESPACE: Final = "kerf-system"
NEWEST: Final = "1.37.0"

_SOURCE: Final = re.compile(r"# Source: kerf/templates/(\S+)\n")
_IDENTITY: Final = re.compile(r"kind: .*\nmetadata:\n(?:  annotations:\n    .*\n)?  name: .*\n(?:  namespace: .*\n)?")


class RefusedError(Exception):
    """Helm refuses chart or values; the message is its own."""


class Rendered(NamedTuple):
    """Which templates make one manifest, with which values beside the defaults."""

    templates: Sequence[str]
    values: Sequence[str]
    profile: str = ""


_NO_KEEP: Final = re.compile(r"  annotations:\n    helm\.sh/resource-policy: keep.*\n")
"""Without Helm nothing is uninstalled by itself."""
MANIFESTS: Final[Mapping[str, Rendered]] = {
    "manifests/00-namespace.yaml": Rendered(["namespace.yaml"], ["namespace.create=true"]),
    "manifests/10-controller.yaml": Rendered(["controller.yaml"], []),
    "manifests/15-permissions.yaml": Rendered(["permissions.yaml"], []),
    "manifests/16-parameters.yaml": Rendered(["parameters.yaml"], []),
    "manifests/17-fpga-descriptions.yaml": Rendered(["fpga-descriptions.yaml"], []),
    "manifests/20-kubelet-plugin.yaml": Rendered(["kubelet-plugin.yaml"], [], profile="simulated"),
    "manifests/30-device-classes.yaml": Rendered(["device-classes.yaml"], []),
    "nvidia/20-kubelet-plugin.yaml": Rendered(["kubelet-plugin.yaml"], [], profile="nvidia"),
    "fpga/20-kubelet-plugin.yaml": Rendered(["kubelet-plugin.yaml"], [], profile="fpga"),
    "intel/20-kubelet-plugin.yaml": Rendered(["kubelet-plugin.yaml"], [], profile="intel"),
    "discovered/20-kubelet-plugin.yaml": Rendered(["kubelet-plugin.yaml"], [], profile="discovered"),
    "nvidia/mps-daemons.yaml": Rendered(["mps-daemons.yaml"], ["mpsDaemons.enabled=true"]),
    "early-loading/permissions.yaml": Rendered(["early-loading.yaml"], ["earlyLoading.enabled=true"]),
    "graded-placement/policy.yaml": Rendered(["graded-placement.yaml"], ["gradedPlacement.enabled=true"]),
    "reclaim/reclaimer.yaml": Rendered(["reclaim.yaml"], ["reclaim.enabled=true"]),
    "do-not-evict/policy.yaml": Rendered(["do-not-evict.yaml"], ["reclaim.restrictDoNotEvict=true"]),
    "classic/permissions.yaml": Rendered(["classic-permissions.yaml"], ["classic.enabled=true"]),
    "classic/sharing-policy.yaml": Rendered(["classic-sharing-policy.yaml"], ["classic.enabled=true"]),
    **{
        f"crds/{path.name}": Rendered([f"crds/{path.name}"], [])
        for path in sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
    },
}
"""The manifests below ``deploy/`` that are rendered from the chart."""


class Helm:
    """Helm, unmodified, of the module beside this file."""

    def __init__(self, program: Path) -> None:
        self._program = program

    @classmethod
    def built(cls) -> "Helm":
        """Build it, if needed: minutes without Go's cache. Raises BuildError."""
        return cls(build_helm())

    def run(self, *arguments: str) -> str:
        """Run Helm with no files of this user. Raises RefusedError."""
        with tempfile.TemporaryDirectory() as home:
            own = {f"HELM_{name}_HOME": home for name in ("CACHE", "CONFIG", "DATA")}
            command = [str(self._program), *arguments]
            done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RefusedError(done.stdout + done.stderr)
        return done.stdout

    def template(
        self, values: Mapping[str, Any], *options: str, kubernetes: str = NEWEST, namespace: str = NAMESPACE
    ) -> str:
        """Return all manifests of a release with ``values``. Raises RefusedError."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(dict(values), file)
            file.flush()
            given = [f"--namespace={namespace}", f"--kube-version={kubernetes}", f"--values={file.name}"]
            return self.run("template", "kerf", str(CHART), *given, *options)


def documents(rendered: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(rendered) if document]


def profile(name: str) -> dict[str, Any]:
    """Return the values of one of the chart's profiles."""
    values: dict[str, Any] = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())
    return values


def render(helm: Helm, manifest: str) -> str:
    """Return the text of a manifest of ``MANIFESTS``: its templates' documents, in the templates' order."""
    recipe = MANIFESTS[manifest]
    values = profile(recipe.profile) if recipe.profile else {}
    said = helm.template(values, *(f"--set={value}" for value in recipe.values))
    found: dict[str, list[str]] = {}
    for document in said.split("---\n"):
        if source := _SOURCE.match(document):
            found.setdefault(source[1], []).append(document[source.end() :].strip("\n"))
    ordered = [one for name in recipe.templates for one in _sort(name, found[name])]
    return _NO_KEEP.sub("", "\n---\n".join(ordered) + "\n")


def write_manifests(helm: Helm) -> Iterator[Path]:
    for manifest in MANIFESTS:
        path = ROOT / "deploy" / manifest
        path.write_text(render(helm, manifest), encoding="utf-8")
        yield path


def _sort(template: str, rendered: Sequence[str]) -> Sequence[str]:
    """Sort documents as the template has them: Helm prints them by kind."""
    text = (CHART / "templates" / template).read_text().replace("{{ .Release.Namespace }}", NAMESPACE)

    def place(document: str) -> int:
        identity = _IDENTITY.search(document)
        assert identity is not None, document
        return text.find(identity[0])

    return sorted(rendered, key=place)
