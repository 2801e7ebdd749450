"""The placement of a pod is what the classes of its claims ask for together."""

from typing import Any

import pytest

from kerf_dra.api.kerf.v1alpha1 import ClassPlacement, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.placement.class_placement import PACKED, PodPlacement, find_placements, find_pod_placement
from tests.allocation.builders import alternative, claim, first_of, request

PLACEMENTS: dict[str, ClassPlacement] = {"packed": "Packed", "spread": "Spread", "spread-too": "Spread", "none": "None"}


def claims_of(*classes: str) -> list[ResourceClaim]:
    return [claim(request("r", device_class_name=name), name=f"of-{name}") for name in classes]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ((), PACKED),
        (("silent",), PACKED),
        (("packed",), PodPlacement("Packed", ("packed",))),
        (("spread", "silent"), PodPlacement("Spread", ("spread",))),
        (("spread-too", "spread"), PodPlacement("Spread", ("spread", "spread-too"))),
        (("none", "silent"), PodPlacement("None", ("none",))),
        (("spread", "packed"), PodPlacement("None", ("packed", "spread"), is_contradictory=True)),
        (("packed", "none"), PodPlacement("None", ("none", "packed"), is_contradictory=True)),
    ],
    ids=str,
)
def test_classes_that_ask_for_the_same_are_followed_and_others_prefer_no_node(
    classes: tuple[str, ...], expected: PodPlacement
) -> None:
    assert find_pod_placement(claims_of(*classes), PLACEMENTS) == expected


def test_each_alternative_of_a_request_counts() -> None:
    either = first_of(
        "r", alternative("first", device_class_name="silent"), alternative("second", device_class_name="spread")
    )
    assert find_pod_placement([claim(either)], PLACEMENTS) == PodPlacement("Spread", ("spread",))


@pytest.mark.parametrize("said", [None, "", "packed", 7, ["Packed"], {"Packed": 1}, True])
def test_what_is_no_placement_asks_for_none(said: Any) -> None:
    """The definition of the kind refuses it, but a cluster may have an older one, or none of it."""
    held = [_class("bad", said), _class("good", "Spread")]
    assert find_placements(held) == {"good": "Spread"}


def test_a_class_without_a_device_class_of_its_own_asks_for_none() -> None:
    """Pods of the DeviceClass of its name are those of the program that has made it."""
    assert find_placements([_class("taken", "Spread", device_class=None)]) == {}


def _class(name: str, placement: Any, device_class: str | None = "") -> ResourceClassObject:
    status = ResourceClassStatus(device_class_name=name if device_class == "" else device_class)
    return ResourceClassObject(metadata=ObjectMeta(name=name), spec={"placement": placement}, status=status)
