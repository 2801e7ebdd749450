"""What empties a cluster by one object, gate or limit, which Kubernetes accepts; rows of ``kinds.toml``."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kerf_dra.api.model.devices import DeviceTaintRule
from kerf_dra.driver.diagnostics.preflight.cluster import check_cluster
from kerf_dra.driver.diagnostics.preflight.results import CheckLevel
from tests.attack.kinds import cases
from tests.diagnostics.preflight.facts import CARD, CLUSTER, controller_pod, published


class EmptiedCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fact of a cluster where nothing else is wrong."""

    check: str
    says: str
    rule: dict[str, Any] = {}
    """The spec of a DeviceTaintRule."""
    gates: dict[str, bool] = {}
    memory: str = ""
    """The controller's limit."""
    other_driver: str = ""
    """A driver that publishes Kerf's card, too."""


@pytest.mark.parametrize(
    "emptied", cases("test_emptied_clusters.py::test_the_check_of_a_cluster_names_it_with_what_to_do", EmptiedCluster)
)
def test_the_check_of_a_cluster_names_it_with_what_to_do(emptied: EmptiedCluster) -> None:
    changes: dict[str, Any] = {}
    if emptied.rule:
        rule = {"metadata": {"name": "repair"}, "spec": emptied.rule}
        changes["taint_rules"] = (*CLUSTER.taint_rules, msgspec.convert(rule, DeviceTaintRule))  # type: ignore[misc]
    if emptied.gates:
        changes["gates"] = emptied.gates
    if emptied.memory:
        changes["pods"] = (controller_pod("1Gi"), controller_pod(emptied.memory))
    if emptied.other_driver:
        changes["slices"] = (CARD, published(emptied.other_driver, {"uuid": "GPU-1"}))
    found = [one for one in check_cluster(replace(CLUSTER, **changes)).results if one.level is not CheckLevel.OK]
    assert {one.check for one in found} == {emptied.check}
    assert [one for one in found if emptied.says in one.message]
    assert all(one.next_step for one in found)
