"""The permissions that docs/security.md tells line by line are those of deploy/."""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.structure.permission_table import PAGE, Permission, read_permissions
from tests.structure.references import missing
from tools.sources import ROOT

ROLES: Final = {
    "kerf-controller": "the controller",
    "kerf-controller-classic": "the controller",
    "kerf-controller-leader-election": "the controller",
    "kerf-kubelet-plugin": "the kubelet plugin",
    "kerf-kubelet-plugin-classic": "the kubelet plugin",
    "kerf-kubelet-plugin-early-loading": "the kubelet plugin",
    "kerf-reclaimer": "the reclaimer",
}
"""How the page calls the accounts of roles."""


_SPAN: Final = re.compile(r"`([^`]+)`")


def granted() -> Iterator[Permission]:
    for folder in ("manifests", "early-loading", "classic", "reclaim"):
        for file in sorted((ROOT / "deploy" / folder).glob("*.yaml")):
            document: Any
            for document in yaml.safe_load_all(file.read_text()):
                for rule in (document or {}).get("rules") or ():
                    account = ROLES[document["metadata"]["name"]]
                    (group,) = rule["apiGroups"]
                    for verb in rule["verbs"]:
                        yield from (Permission(account, folder, verb, group, name) for name in rule["resources"])


def test_the_page_tells_every_permission_of_deploy_and_no_other() -> None:
    assert sorted(set(read_permissions())) == sorted(set(granted()))


def test_the_page_names_no_account_without_a_role() -> None:
    assert {one.account for one in read_permissions()} == set(ROLES.values())


def test_the_page_names_every_policy_of_deploy() -> None:
    found = [
        document["metadata"]["name"]
        for file in sorted((ROOT / "deploy").rglob("*.yaml"))
        if "chart" not in file.relative_to(ROOT).parts  # templates, from which the manifests are rendered
        for document in yaml.safe_load_all(file.read_text())
        if document and document.get("kind") == "ValidatingAdmissionPolicy"  # rules of Prometheus have no kind
    ]
    assert len(found) > 5
    assert [name for name in found if f"`{name}`" not in PAGE.read_text()] == []


def test_every_row_that_is_shown_by_a_test_names_one_that_is_there() -> None:
    """The first rows are whom Kerf does not trust, then what they try, then the policies."""
    shown, tables = "", 0
    for line in PAGE.read_text().splitlines():
        last = line.strip("|").split("|")[-1].strip()
        if not line.startswith("|"):
            shown = ""
        elif last == "shown by":
            shown, tables = "a test", tables + 1
        elif shown and set(last) != {"-"}:
            shown = shown if last == "the same" else last
            spans = [span for span in _SPAN.findall(shown) if "test_" in span]
            assert spans, line
            assert [name for span in spans for name in missing(span)] == [], line
    assert tables == 3
