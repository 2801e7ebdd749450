"""Generates the CRD manifests of ``deploy/crds`` from the structs of ``kerf_dra.api.kerf``.

``python -m tools.generate.crds`` writes them in place; a test generates them into another folder and compares.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from kerf_dra.api.kerf import (
    classic_parameters,
    device_status,
    discovery_objects,
    fpga_objects,
    node_inventory,
    v1alpha1,
)
from kerf_dra.api.model import devices, metadata
from tools.generate.crd_schema import DEFINITIONS, FieldDocs, build_crd

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = Path("deploy/crds")

_HEADER: Final = "# Generated from api/kerf by `make generate`; the structs' docstrings are the descriptions.\n"
_MODULES: Final = (
    metadata,
    devices,
    v1alpha1,
    classic_parameters,
    node_inventory,
    device_status,
    fpga_objects,
    discovery_objects,
)
"""The modules that define the structs of Kerf's documents."""
_WIDTH: Final = 120
"""Characters per line, as everywhere in the repository."""


@cache
def documents() -> Sequence[dict[str, Any]]:
    """Return what the manifests say, in the order of ``generate``."""
    docs = field_docs()
    return [build_crd(definition, docs) for definition in DEFINITIONS]


def generate(target: Path) -> list[Path]:
    """Write the manifests below ``target`` and return their paths relative to it."""
    (target / GENERATED).mkdir(parents=True, exist_ok=True)
    paths = []
    for definition, document in zip(DEFINITIONS, documents(), strict=True):
        path = GENERATED / f"kerf.dev_{definition.kind.plural}.yaml"
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
        (target / path).write_text(_HEADER + text, encoding="utf-8")
        paths.append(path)
    return paths


def field_docs() -> FieldDocs:
    """Return the docstrings of fields, which Python does not keep, from the source files."""
    return {found: doc for module in _MODULES for found, doc in _module_docs(module)}


def _module_docs(module: ModuleType) -> Iterator[tuple[tuple[type, str], str]]:
    for class_ in ast.parse(inspect.getsource(module)).body:
        if isinstance(class_, ast.ClassDef):
            for field, doc in zip(class_.body, class_.body[1:], strict=False):
                match field, doc:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        yield (getattr(module, class_.name), name), text


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors, so that a manifest repeats equal parts."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
        print(path)
