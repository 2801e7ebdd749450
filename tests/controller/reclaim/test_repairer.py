"""The part of the reclaimer that acts by itself: what it writes, deletes and reports in each mode."""

from typing import Any

import pytest

from kerf_dra.driver.controller.reclaim.repairer import keep_repairs
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL
from kerf_dra.driver.kube.http.errors import ForbiddenError, ServerError
from kerf_dra.driver.reclaim.automatic_repairs import ReclaimMode, RepairLimits
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.cluster_states import slices
from tests.reclaim.cases import taint_slices

from .cluster import Cluster, uuid

NAME = "node-1.gpu-node-1-1-auto-0"


def cluster_in(mode: ReclaimMode, **settings: Any) -> Cluster:
    """Return a cluster whose second card needs a reset, with a pod on each card."""
    cluster = Cluster(settings=ReclaimSettings(mode=mode, **settings))
    cluster.run_pod("other", "gpu-0")
    cluster.run_pod("web", "gpu-1")
    cluster.repairs = {"gpu-1": "reset.xid-95"}
    return cluster


def writes(cluster: Cluster) -> list[tuple[str, str]]:
    return [call for call in cluster.calls if call[0] not in ("list", "find")]


def count(state: str) -> float | None:
    return REGISTRY.get_sample_value("kerf_cards_to_repair", {"state": state})


async def test_in_mode_act_a_maintenance_is_written_once_and_it_is_the_nodes_from_the_start() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    for _ in range(3):
        await cluster.repair()
    assert writes(cluster) == [("create", NAME)]
    held = cluster.maintenances[NAME]
    assert held["metadata"]["labels"] == {"kerf.dev/automatic": "true", NODE_LABEL: "node-1"}
    assert (held["spec"]["card"], held["spec"]["then"]) == (uuid("gpu-1"), "Reset")
    assert (count("started"), count("reported")) == (1, 0)


async def test_its_pods_are_evicted_and_those_of_the_other_card_stay() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    await cluster.repair()
    cluster.follow_maintenances()
    await cluster.reconcile()
    assert [cluster.cards[uid] for uid in cluster.evicted] == ["gpu-1"]


async def test_in_mode_report_nothing_is_written_and_the_node_has_one_event_about_it() -> None:
    cluster = cluster_in(ReclaimMode.REPORT)
    for _ in range(3):
        await cluster.repair()
    assert writes(cluster) == []
    [(node, message)] = cluster.events
    assert node == "node-1"
    assert "needs a reset (xid-95): mode Report, so nothing is done" in message
    assert "`kerf drain node-1/gpu-1 --then reset` evicts default/web" in message
    assert (count("started"), count("reported")) == (0, 1)
    cluster.repairs = {}
    await cluster.repair()
    assert count("reported") == 0
    cluster.repairs = {"gpu-1": "reset.xid-95"}
    await cluster.repair()
    assert len(cluster.events) == 2, "it is ill again"


async def test_in_mode_off_its_own_maintenances_are_deleted_those_of_people_stay_and_nothing_is_reported() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    await cluster.repair()
    people = cluster.drain("gpu-0")
    cluster.settings = ReclaimSettings(mode=ReclaimMode.OFF)
    cluster.new_process()
    cluster.events.clear()
    await cluster.repair()
    assert writes(cluster)[1:] == [("delete", NAME)]
    assert [*cluster.maintenances] == [people]
    assert cluster.events == []


async def test_a_card_that_is_well_again_before_its_pods_were_evicted_is_given_back() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    await cluster.repair()
    cluster.repairs = {}
    await cluster.repair()
    assert cluster.maintenances == {}


async def test_a_late_cache_neither_writes_a_second_maintenance_nor_deletes_a_changed_one() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    cluster.deliver()
    for _ in range(2):
        await cluster.repairer.reconcile()
    assert [*cluster.maintenances] == [NAME]
    cluster.deliver()
    cluster.follow_maintenances()
    await cluster.reclaimer.reconcile()  # the label and status have other versions now than the cache
    cluster.repairs = {}
    await cluster.repairer.reconcile()
    assert [*cluster.maintenances] == [NAME]


@pytest.mark.parametrize(
    "error", [ServerError("GET", 500, "InternalError", "down"), ForbiddenError("GET", 403, "F", "no")]
)
async def test_a_node_that_cannot_be_read_is_neither_judged_well_nor_forgotten_in_the_limits(error: Exception) -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    await cluster.repair()
    cluster.repairs = {}
    cluster.fail = lambda verb, _name: error if verb == "list" else None
    await cluster.repair()
    assert [*cluster.maintenances] == [NAME]
    cluster.fail = lambda _verb, _name: None
    await cluster.repair()
    assert cluster.maintenances == {}


async def test_a_late_cache_that_shows_a_maintenance_of_before_writes_none_beside_the_one_in_its_place() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    await cluster.repair()
    cluster.maintenances[NAME]["status"] = {"work": {"state": "Done", "observedGeneration": 1}}
    cluster.deliver()
    del cluster.maintenances[NAME]
    other = cluster.start_process()
    await other.repairer.reconcile()
    await cluster.repairer.reconcile()
    assert [*cluster.maintenances] == [NAME]


async def test_while_maintenances_cannot_be_listed_none_is_written() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    down = ServerError("GET", 500, "InternalError", "down")
    cluster.fail = lambda _verb, name: down if name == "cardmaintenances" else None
    await cluster.repair()
    assert cluster.maintenances == {}
    cluster.fail = lambda _verb, _name: None
    await cluster.repair()
    assert [*cluster.maintenances] == [NAME]


async def test_what_cannot_be_written_is_tried_again() -> None:
    cluster = cluster_in(ReclaimMode.ACT)
    cluster.fail = lambda verb, _name: ForbiddenError("POST", 403, "F", "no") if verb == "create" else None
    await cluster.repair()
    assert cluster.maintenances == {}
    cluster.fail = lambda _verb, _name: None
    await cluster.repair()
    assert [*cluster.maintenances] == [NAME]
    cluster.repairs = {}
    cluster.fail = lambda verb, _name: ServerError("DELETE", 500, "I", "down") if verb == "delete" else None
    await cluster.repair()
    assert [*cluster.maintenances] == [NAME]


async def test_of_two_ill_cards_of_a_node_the_limit_lets_one_be_repaired() -> None:
    cluster = cluster_in(ReclaimMode.ACT, limits=RepairLimits(cards=4, node_cards=1))
    cluster.repairs = {"gpu-0": "boot.xid-79", "gpu-1": "reset.xid-95"}
    await cluster.repair()
    assert [*cluster.maintenances] == ["node-1.gpu-node-1-0-auto-0"]
    assert (count("started"), count("limited")) == (1, 1)


def test_the_cache_keeps_of_a_slice_its_node_if_a_device_of_it_asks_for_a_repair() -> None:
    published = taint_slices(slices("node-1", 1), "gpu-0", value="reset.xid-95", name="repair")
    assert {keep_repairs(one).node for one in published if one.spec.devices} == {"node-1"}
    other = taint_slices(slices("node-1", 1), "gpu-0", value="idle")
    assert {keep_repairs(one).node for one in other} == {""}
    assert [keep_repairs(one).ref for one in other] == [one.ref for one in other]
