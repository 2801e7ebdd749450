"""The permissions that `kerf check` asks for are those that the manifests give."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.driver.diagnostics.preflight.permissions import (
    CONTROLLER,
    PLUGIN,
    RECLAIMER,
    Permission,
    controller_permissions,
    plugin_permissions,
    reclaimer_permissions,
)
from kerf_dra.driver.families.registry import BUILT_IN

DEPLOY = Path(__file__).parents[3] / "deploy"
DRIVERS = [family.driver for family in BUILT_IN]


def documents(*folders: str) -> Iterator[Mapping[str, Any]]:
    for folder in folders:
        for file in sorted((DEPLOY / folder).glob("*.yaml")):
            yield from (document for document in yaml.safe_load_all(file.read_text()) if document)


def granted(account: str, manifests: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """What the roles that are bound to ``account`` allow."""
    manifests = list(manifests)
    bound = [
        (document["roleRef"]["kind"], document["metadata"].get("namespace", ""), document["roleRef"]["name"])
        for document in manifests
        if document["kind"] in {"ClusterRoleBinding", "RoleBinding"}
        and any(subject["name"] == account for subject in document["subjects"])
    ]
    return {
        Permission(group, resource, verb, document["metadata"].get("namespace", ""), name)
        for document in manifests
        if document["kind"] in {"ClusterRole", "Role"}
        and (document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]) in bound
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize("is_classic", [False, True])
def test_each_account_is_asked_for_exactly_what_the_manifests_give(is_classic: bool) -> None:
    manifests = list(documents("manifests", *(["classic"] if is_classic else [])))
    controller = controller_permissions("kerf-system", is_classic=is_classic)
    plugin = plugin_permissions(DRIVERS, minor=37, is_classic=is_classic)
    assert {*controller} == granted(CONTROLLER, manifests)
    assert {*plugin} == granted(PLUGIN, manifests)


def test_the_reclaimer_is_asked_for_what_its_manifest_gives() -> None:
    assert {*reclaimer_permissions("kerf-system")} == granted(RECLAIMER, documents("reclaim"))


def test_no_permission_is_asked_for_that_a_release_does_not_know() -> None:
    assert not any(one.resource == "resourceclaims/driver" for one in plugin_permissions(DRIVERS, minor=35))
