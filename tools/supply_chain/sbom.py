"""The bill of materials of Kerf, of its lock file and the metadata of what is installed (CycloneDX 1.6, JSON).

It is made on demand (``make sbom``) and not kept: the lock file and the environment that was made of it
say the same. The same lock gives the same bytes.
"""

import hashlib
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from kerf_dra.driver import DISTRIBUTION, VERSION
from tools.supply_chain.licenses import license_of
from tools.supply_chain.lock import ROOT, LockedPackage, read_lock

SPEC: Final = "1.6"
_NAMESPACE: Final = uuid.UUID("5b4d1f7e-3c0a-5e0f-9a55-2f0d1c8f6f11")
"""The namespace of serial numbers (RFC 9562, version 5)."""


LOCK: Final = ROOT / "requirements.lock"


def build_sbom(*locks: Path, with_simulated: bool = True) -> Mapping[str, Any]:
    """Return the document of the packages in ``locks``, or in that of Kerf's users.

    It says whether Kerf has what imitates a cluster or hardware, which an image may be without.

    Packages for other platforms, which are not installed here, are in it without a licence.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in locks or [LOCK])).hexdigest()
    identity = digest if with_simulated else f"{digest} without simulated hardware"
    packages = [package for path in locks or [LOCK] for package in read_lock(path)]
    simulated = {"name": "kerf:simulated-hardware", "value": "included" if with_simulated else "left out"}
    component = _component(DISTRIBUTION, VERSION, ["Apache-2.0"])
    kerf = {**component, "type": "application", "properties": [simulated]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, identity)}",
        "version": 1,
        "metadata": {
            "component": kerf,
            "properties": [{"name": "kerf:requirements.lock:sha256", "value": digest}],
        },
        "components": [_of_package(package) for package in packages],
        "dependencies": _dependencies(packages),
    }


def _of_package(package: LockedPackage) -> Mapping[str, Any]:
    component = _component(package.name, package.version, _licenses(package.name))
    properties = [{"name": "kerf:file:sha256", "value": each} for each in package.hashes]
    marker = [{"name": "kerf:needed-where", "value": package.marker}] if package.marker else []
    return {**component, "properties": [*marker, *properties]}


def _component(name: str, version_: str, licenses: Iterable[str]) -> dict[str, Any]:
    reference = _reference(name, version_)
    listed = [{"expression": each} for each in licenses]
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version_,
        "purl": reference,
        "licenses": listed,
    }


def _reference(name: str, version_: str) -> str:
    return f"pkg:pypi/{canonicalize_name(name)}@{version_}"


def _licenses(name: str) -> list[str]:
    try:
        return [license_of(name)]
    except PackageNotFoundError:
        return []


def _dependencies(packages: Sequence[LockedPackage]) -> list[Mapping[str, Any]]:
    references = {canonicalize_name(each.name): _reference(each.name, each.version) for each in packages}
    needs = {reference: _needs(name) for name, reference in references.items()}
    needs = {_reference(DISTRIBUTION, VERSION): _of(_project()["dependencies"])} | needs
    return [
        {"ref": reference, "dependsOn": sorted({references[need] for need in needed if need in references})}
        for reference, needed in needs.items()
    ]


def _project() -> Mapping[str, Any]:
    """Return Kerf's own metadata: an environment may have an older one, from before a change of it."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def _needs(name: str) -> set[NormalizedName]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return set()
    return _of(lines)


def _of(lines: Iterable[str]) -> set[NormalizedName]:
    """Return the packages of requirements that have no extra."""
    needed = map(Requirement, lines)
    return {
        canonicalize_name(each.name) for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})
    }
