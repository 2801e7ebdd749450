"""The permissions that docs/security.md tells line by line are those of deploy/."""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.structure.sources import ROOT

PAGE: Final = ROOT / "docs/security.md"
Permission = tuple[str, str, str]
"""An account, a verb and a resource."""
ROLES: Final = {
    "kerf-controller": "the controller",
    "kerf-controller-leader-election": "the controller",
    "kerf-kubelet-plugin": "the kubelet plugin",
    "kerf-kubelet-plugin-early-loading": "the same",
}
"""How the page calls the accounts of roles."""


def told() -> Iterator[Permission]:
    """The lines of the page's table of accounts."""
    table = PAGE.read_text().partition("## Kerf's own accounts")[2]
    account = ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[1] not in {"may", "---"}:
            account = re.split(r" \(| with ", cells[0])[0] or account
            for verb in cells[1].split(", "):
                yield from ((account, verb, name) for name in re.findall(r"`([a-z/]+)`", cells[2]))


def granted() -> Iterator[Permission]:
    for folder in ("manifests", "early-loading"):
        for file in sorted((ROOT / "deploy" / folder).glob("*.yaml")):
            document: Any
            for document in yaml.safe_load_all(file.read_text()):
                for rule in (document or {}).get("rules") or ():
                    account = ROLES[document["metadata"]["name"]]
                    yield from ((account, verb, name) for name in rule["resources"] for verb in rule["verbs"])


def test_the_page_tells_every_permission_of_deploy_and_no_other() -> None:
    assert sorted(set(told())) == sorted(set(granted()))


def test_the_page_names_no_account_without_a_role() -> None:
    assert {account for account, _, _ in told()} == set(ROLES.values())


def test_the_page_names_every_policy_of_deploy() -> None:
    found = [
        document["metadata"]["name"]
        for file in sorted((ROOT / "deploy").rglob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
        if document and document.get("kind") == "ValidatingAdmissionPolicy"  # rules of Prometheus have no kind
    ]
    assert len(found) > 5
    assert [name for name in found if f"`{name}`" not in PAGE.read_text()] == []
