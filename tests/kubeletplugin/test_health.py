"""What is ill, and what that means for devices and for the kubelet."""

import pytest

from api.dra.health import Health
from driver.kubeletplugin.backends.base import HealthChange
from driver.kubeletplugin.health import HealthBoard
from driver.partitions.geometry import DeviceKind, Partition, Placement
from tests.kubeletplugin.records import device, record


def part(start: int | None, size: int = 1, card: str = "GPU-0") -> Partition:
    placement = None if start is None else Placement(start, size)
    return Partition(kind=DeviceKind.GPU, card_uuid=card, placement=placement)


def change(partition: Partition | None, *, healthy: bool = False, reason: str = "Xid 79") -> HealthChange:
    return HealthChange(card_uuid="GPU-0", partition=partition, healthy=healthy, reason="" if healthy else reason)


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
    assert board(change(ill)).reason(asked) == expected


def test_an_illness_ends_with_its_cause() -> None:
    assert board(change(None), change(None, healthy=True)).reason(part(0)) is None
    assert board(change(None), change(part(0)), change(None, healthy=True)).reason(part(0)) == "Xid 79"


def test_only_news_are_news() -> None:
    known = board()
    assert [known.note(each) for each in (change(None), change(None), change(None, reason="Xid 48"))] == [
        True,
        False,
        True,
    ]
    assert [known.note(change(None, healthy=True)) for _ in range(2)] == [True, False]


def test_what_a_backend_said_can_be_forgotten() -> None:
    known = board(change(None), change(part(0)))
    known.forget({"GPU-1"})
    assert len(known.ills) == 2
    known.forget({"GPU-0"})
    assert not known.ills


def test_the_taint_keeps_claims_away_and_evicts_nobody() -> None:
    assert (board().taint.key, board().taint.effect) == ("kerf.dev/unhealthy", "NoSchedule")


def test_the_kubelet_learns_of_each_device_of_a_claim_once() -> None:
    shared = device("gpu-1", card="GPU-1", start=None, size=None, share="a")
    other = device("gpu-1", card="GPU-1", start=None, size=None, share="b")
    reports = board(change(part(0))).reports([record("one", device(), shared), record("two", other)])
    assert [(report.pool, report.device, report.health, report.message) for report in reports] == [
        ("node-1/gpu", "gpu-0-1g-1gb-at-0", Health.UNHEALTHY, "Xid 79"),
        ("node-1/gpu", "gpu-1", Health.HEALTHY, ""),
    ]
    assert {report.checked_at_s for report in reports} == {1000}
