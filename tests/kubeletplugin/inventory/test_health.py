"""What is ill, and what that means for devices and for the kubelet."""

import pytest

from api.dra.health import Health
from driver.kubeletplugin.backends.base import Condition, HealthChange
from driver.kubeletplugin.inventory.health import HealthBoard
from driver.partitions.geometry import DeviceKind, Partition, Placement
from tests.kubeletplugin.records import device, record


def part(start: int | None, size: int = 1, card: str = "GPU-0") -> Partition:
    placement = None if start is None else Placement(start, size)
    return Partition(kind=DeviceKind.GPU, card_uuid=card, placement=placement)


def change(
    partition: Partition | None, condition: Condition = Condition.ILL, *, reason: str = "Xid 79"
) -> HealthChange:
    return HealthChange(card_uuid="GPU-0", partition=partition, condition=condition, reason=reason)


def reason(of: HealthBoard, partition: Partition) -> str | None:
    ailment = of.ailment(partition)
    return None if ailment is None else ailment.reason


def board(*changes: HealthChange) -> HealthBoard:
    made = HealthBoard(driver="kerf.dev", now=lambda: 1000.9)
    for each in changes:
        made.note(each)
    return made


@pytest.mark.parametrize(
    ("ill", "asked", "expected"),
    [
        (None, part(0), "Xid 79"),
        (None, part(None), "Xid 79"),
        (None, part(0, card="GPU-1"), None),
        (part(0), part(0), "Xid 79"),
        (part(0), part(1), None),
        (part(0), part(0, 2), "Xid 79"),
        (part(0), part(None), "Xid 79"),
    ],
)
def test_an_illness_reaches_what_it_overlaps(ill: Partition | None, asked: Partition, expected: str | None) -> None:
    assert reason(board(change(ill)), asked) == expected


def test_an_illness_ends_with_its_cause() -> None:
    assert reason(board(change(None), change(None, Condition.WELL)), part(0)) is None
    assert reason(board(change(None), change(part(0)), change(None, Condition.WELL)), part(0)) == "Xid 79"


def test_only_news_are_news() -> None:
    known = board()
    assert [known.note(each) for each in (change(None), change(None), change(None, reason="Xid 48"))] == [
        True,
        False,
        True,
    ]
    assert [known.note(change(None, Condition.WELL)) for _ in range(2)] == [True, False]


def test_what_a_backend_said_can_be_forgotten() -> None:
    known = board(change(None), change(part(0)))
    known.forget({"GPU-1"})
    assert len(known.ailments) == 2
    known.forget({"GPU-0"})
    assert not known.ailments


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], []),
        ([Condition.ILL], [("kerf.dev/unhealthy", "ill", "NoSchedule")]),
        ([Condition.LOST], [("kerf.dev/unhealthy", "lost", "NoExecute")]),
        ([Condition.ILL, Condition.LOST], [("kerf.dev/unhealthy", "lost", "NoExecute")]),
        ([Condition.LOST, Condition.ILL], [("kerf.dev/unhealthy", "ill", "NoSchedule")]),
        ([Condition.LOST, Condition.WELL], []),
    ],
)
def test_what_is_ill_gets_no_new_claims_and_what_is_lost_is_left_by_its_pods(
    conditions: list[Condition], expected: list[tuple[str, str, str]]
) -> None:
    known = board(*(change(None, condition) for condition in conditions))
    assert [(taint.key, taint.value, taint.effect) for taint in known.taints(part(0))] == expected


def test_of_several_ailments_the_worst_counts() -> None:
    for order in ([part(0), None], [None, part(0)]):
        lost = {part(0): Condition.LOST, None: Condition.ILL}
        known = board(*(change(each, lost[each], reason=lost[each]) for each in order))
        assert (reason(known, part(0)), reason(known, part(1))) == ("lost", "ill")


def test_the_kubelet_learns_of_each_device_of_a_claim_once() -> None:
    shared = device("gpu-1", card="GPU-1", start=None, size=None, share="a")
    other = device("gpu-1", card="GPU-1", start=None, size=None, share="b")
    reports = board(change(part(0))).reports([record("one", device(), shared), record("two", other)])
    assert [(report.pool, report.device, report.health, report.message) for report in reports] == [
        ("node-1/gpu", "gpu-0-1g-1gb-at-0", Health.UNHEALTHY, "Xid 79"),
        ("node-1/gpu", "gpu-1", Health.HEALTHY, ""),
    ]
    assert {report.checked_at_s for report in reports} == {1000}
