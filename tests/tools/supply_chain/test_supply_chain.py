"""What Kerf is made of is pinned, hashed, under known licences, and told in a bill of materials."""

import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.supply_chain.licenses import ALLOWED, OTHERS, identifiers, license_of
from tools.supply_chain.lock import LOCKS, ROOT, NotLockedError, read_lock
from tools.supply_chain.sbom import build_sbom


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_with_hashes(lock: str) -> None:
    packages = read_lock(ROOT / lock)
    assert len(packages) > 30
    assert len({(each.name, each.marker) for each in packages}) == len(packages)


@pytest.mark.parametrize(
    "line", ["a>=1 --hash=sha256:" + 64 * "0", "a==1", "a==1 --hash=md5:" + 32 * "0", "-e .", "a @ u"]
)
def test_what_is_not_pinned_with_hashes_is_an_error(line: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f"{line}\n")
    with pytest.raises(NotLockedError):
        read_lock(tmp_path / "lock")


def needed_extras(package: str) -> Iterator[tuple[str, str]]:
    """What an installed package needs of others by their extras, each by name; nothing if it is not installed."""
    try:
        lines = requires(package) or []
    except PackageNotFoundError:
        return
    for need in map(Requirement, lines):
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            yield from ((canonicalize_name(need.name), extra) for extra in need.extras)


@pytest.mark.parametrize("lock", LOCKS)
def test_what_others_need_of_a_package_by_an_extra_is_locked_with_the_extra(lock: str) -> None:
    """pytest-cov needs coverage[toml], and the lock had coverage alone.

    pip 23.2 then took the newest coverage[toml] that the index had, and refused it for having no hash: an environment
    could be made until the next release of coverage, and not from then on.
    """
    packages = {each.name: each.extras for each in read_lock(ROOT / lock)}
    needed = {need for name in packages for need in needed_extras(name)}
    assert {(name, extra) for name, extra in needed if extra not in packages[name]} == set()
    assert ("coverage", "toml") in needed or lock != "requirements-dev.lock"


def test_what_developers_install_has_the_versions_that_users_get() -> None:
    users, *others = ({(each.name, each.marker): each.version for each in read_lock(ROOT / lock)} for lock in LOCKS)
    assert all(users.items() <= each.items() for each in others)


def installed() -> Iterator[tuple[str, str]]:
    """The packages of the lock files that are installed here, with their licences."""
    for name in sorted({each.name for lock in LOCKS for each in read_lock(ROOT / lock)}):
        try:
            yield name, license_of(name)
        except PackageNotFoundError:
            continue


def test_every_package_has_an_allowed_licence() -> None:
    found = dict(installed())
    assert len(found) > 50
    others = {name: text for name, text in found.items() if not text or not identifiers(text) <= ALLOWED}
    assert others == {name: text for name, text in OTHERS.items() if name in found}


def test_the_bill_of_materials_has_every_package_of_the_lock_and_what_it_needs() -> None:
    document = build_sbom()
    assert document == build_sbom(), "the same lock gives the same document"
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    listed = {(each["name"], each["version"]) for each in document["components"]}
    assert listed == {(each.name, each.version) for each in read_lock(ROOT / "requirements.lock")}
    references = [document["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in document["components"])]
    assert len(set(references)) == len(references)
    graph = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    assert graph.keys() == set(references)
    reached, waiting = set[str](), references[:1]
    while waiting:
        reached.add(one := waiting.pop())
        waiting += [each for each in graph[one] if each not in reached]
    alone = {each["bom-ref"] for each in document["components"] if not each["licenses"]}
    assert reached >= set(references) - alone


def test_the_bill_of_materials_says_whether_simulated_hardware_is_included() -> None:
    """Two images of one version differ in it, and a scanner tells their bills apart by the serial number."""
    bills = [build_sbom(with_simulated=wanted) for wanted in (True, False)]
    said = [bill["metadata"]["component"]["properties"] for bill in bills]
    assert said == [[{"name": "kerf:simulated-hardware", "value": value}] for value in ("included", "left out")]
    assert len({bill["serialNumber"] for bill in bills}) == 2


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("", 2, "there is no pip-audit (pipx install pip-audit): nothing was checked"),
        ("echo no database >&2; exit 1", 2, "no database"),
        ('echo "$*"', 0, "--strict --require-hashes --disable-pip -r requirements.lock"),
    ],
    ids=["no pip-audit", "no database", "a database"],
)
def test_make_audit_checks_the_lock_or_fails_and_says_that_it_did_not(
    program: str, code: int, said: str, tmp_path: Path
) -> None:
    if program:
        (tmp_path / "pip-audit").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "pip-audit").chmod(0o755)
    make = shutil.which("make")
    assert make is not None
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run([make, "audit"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
