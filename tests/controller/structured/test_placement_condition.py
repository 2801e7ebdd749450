"""The condition Placement of a class: whether the placement that it asks for is in effect."""

from datetime import timedelta
from typing import Any

import pytest

from kerf_dra.driver.controller.settings import LEASE
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.placement_verdict import LATELY
from tests.controller.structured.placement.cluster import NoLeases

from .cluster import START, Cluster, verdicts


def build(*, is_enabled: bool = True) -> tuple[Cluster, ExtenderActivity]:
    cluster = Cluster()
    activity = ExtenderActivity(NoLeases(), LEASE, now=lambda: START + timedelta(seconds=cluster.seconds))
    cluster.extender = activity if is_enabled else None
    cluster.reconciler = cluster.new_reconciler()
    return cluster, activity


async def test_a_class_follows_what_becomes_of_the_extender() -> None:
    cluster, activity = build()
    cluster.put_class("packed", {"device": "gpu", "placement": "Packed"})
    await cluster.settle("packed")
    assert verdicts(cluster, "packed")["Placement"] == "False ExtenderNotAsked"
    assert ("packed", "Warning", "ExtenderNotAsked") in [event[:3] for event in cluster.events]
    activity.note_asked()
    await cluster.settle("packed")
    assert verdicts(cluster, "packed")["Placement"] == "True ExtenderActive"
    assert await cluster.settle("packed") == [], "it is written once"
    cluster.seconds += LATELY.total_seconds() + 1
    await cluster.settle("packed")
    assert verdicts(cluster, "packed")["Placement"] == "Unknown ExtenderNotAskedLately"


async def test_where_the_extender_is_disabled_a_class_that_needs_it_says_so_and_others_are_as_before() -> None:
    cluster, _ = build(is_enabled=False)
    for name, spec in {"spread": {"placement": "Spread"}, "silent": {}, "none": {"placement": "None"}}.items():
        cluster.put_class(name, {"device": "gpu", **spec})
        await cluster.settle(name)
    assert verdicts(cluster, "spread")["Placement"] == "False ExtenderDisabled"
    assert "Placement" not in verdicts(cluster, "silent")
    assert verdicts(cluster, "none")["Placement"] == "True NoPreference"
    assert {verdicts(cluster, name)["Ready"] for name in ("spread", "silent", "none")} == {"True Compiled"}


async def test_a_class_that_asks_for_nothing_says_that_it_is_packed_while_schedulers_ask() -> None:
    cluster, activity = build()
    cluster.put_class("silent", {"device": "gpu"})
    await cluster.settle("silent")
    assert "Placement" not in verdicts(cluster, "silent")
    activity.note_asked()
    await cluster.settle("silent")
    assert "the fewest others impossible" in cluster.condition("silent", "Placement").message
    cluster.seconds += LATELY.total_seconds() + 1
    await cluster.settle("silent")
    assert "Placement" not in verdicts(cluster, "silent")


SMALL: dict[str, Any] = {"device": "gpu", "profile": "1g.10gb", "placement": "Packed"}


async def test_a_class_follows_what_becomes_of_graded_placement() -> None:
    cluster, _ = build(is_enabled=False)
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Placement"] == "False ExtenderDisabled"
    assert "gradedPlacement.enabled" in cluster.condition("small", "Placement").message
    cluster.bindings.exists = True
    assert await cluster.grading.refresh()
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Placement"] == "True Graded"
    assert await cluster.settle("small") == [], "it is written once"
    cluster.bindings.exists = False
    assert await cluster.grading.refresh()
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Placement"] == "False ExtenderDisabled"


async def test_a_class_that_is_graded_from_the_start_is_never_reported_as_without_effect() -> None:
    cluster, _ = build(is_enabled=False)
    cluster.bindings.exists = True
    await cluster.grading.refresh()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Placement"] == "True Graded"
    assert not [event for event in cluster.events if event[1] == "Warning" and "xtender" in event[2]]


@pytest.mark.parametrize(
    "change",
    [
        {"placement": "Spread"},
        {"profile": None, "minimum": {"memory": "9Gi"}},
        {"allocation": "Shared"},
        {"profile": None, "cut": "Whole"},
        {"device": "fpga", "profile": None, "function": "resnet50"},
    ],
)
async def test_a_class_whose_requests_the_policy_leaves_alone_is_not_graded(change: dict[str, Any]) -> None:
    """The policy finds DeviceClasses by their label, which these do not get."""
    cluster, _ = build(is_enabled=False)
    cluster.bindings.exists = True
    await cluster.grading.refresh()
    cluster.put_class("other", {key: value for key, value in (SMALL | change).items() if value is not None})
    await cluster.settle("other")
    assert verdicts(cluster, "other")["Accepted"].startswith("True")
    assert verdicts(cluster, "other")["Placement"] == "False ExtenderDisabled"
    assert "graded placement is only for" in cluster.condition("other", "Placement").message


async def test_a_class_whose_name_another_programs_device_class_has_is_not_graded() -> None:
    cluster, _ = build(is_enabled=False)
    cluster.bindings.exists = True
    await cluster.grading.refresh()
    cluster.put_device_class("small", spec={})
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    assert verdicts(cluster, "small")["Ready"] == "False NameTaken"
    assert verdicts(cluster, "small")["Placement"] == "False ExtenderDisabled"


@pytest.mark.parametrize(
    "spec", [{"device": "gpu", "cut": "Monitor"}, {"device": "shared"}, {"device": "gpu", "placement": "packed"}]
)
async def test_devices_that_take_nothing_or_are_of_no_node_and_classes_with_mistakes_have_no_condition(
    spec: dict[str, Any],
) -> None:
    cluster, activity = build()
    activity.note_asked()
    cluster.put_class("other", spec)
    await cluster.settle("other")
    assert "Placement" not in verdicts(cluster, "other")


async def test_a_placement_that_is_taken_back_takes_its_condition_along() -> None:
    cluster, _ = build()
    cluster.put_class("packed", {"device": "gpu", "placement": "Packed"})
    await cluster.settle("packed")
    cluster.put_class("packed", {"device": "gpu"})
    await cluster.settle("packed")
    assert "Placement" not in verdicts(cluster, "packed")
