"""What is on the cards, and what still fits, as metrics."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from kerf_dra.driver.kubeletplugin.inventory.metrics.card_metrics import CardMetrics, CardUse
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.partitions.cards import gpu, gpu_partition

NODE = "node-1"
H100 = gpu("h100-80gb-sxm")
_NUMBERS = count()


@pytest.fixture
def driver() -> Iterator[str]:
    """A driver of one test alone: the registry is the process's."""
    name = f"metrics-{next(_NUMBERS)}.example.com"
    yield name
    CardMetrics(name, NODE).update([], CardUse())


def value(name: str, driver: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"driver": driver, "node": NODE, "card": "gpu-0", **labels})


def test_an_empty_card_has_room_for_seven_small_partitions_or_itself(driver: str) -> None:
    CardMetrics(driver, NODE).update([H100], CardUse())
    assert value("kerf_free_partitions", driver, cut="1g.10gb") == 7
    assert value("kerf_free_partitions", driver, cut="3g.40gb") == 2
    assert value("kerf_free_partitions", driver, cut="whole") == 1
    assert value("kerf_stranded_units", driver) == 0
    assert value("kerf_card_info", driver, uuid=H100.uuid, model="h100-80gb-sxm") == 1


def test_seven_small_partitions_strand_the_eighth_slice(driver: str) -> None:
    taken = [gpu_partition(H100, "1g.10gb", start) for start in range(7)]
    CardMetrics(driver, NODE).update([H100], CardUse(claims=taken[:5], foreign=taken[5:]))
    assert value("kerf_partitions", driver, cut="1g.10gb", holder="claims") == 5
    assert value("kerf_partitions", driver, cut="1g.10gb", holder="others") == 2
    assert value("kerf_free_partitions", driver, cut="1g.10gb") == 0
    assert value("kerf_stranded_units", driver) == value("kerf_free_units", driver) == 1
    assert value("kerf_card_units", driver) == 8
    assert value("kerf_card_partitions", driver, cut="1g.10gb") == 7


def test_what_is_gone_has_no_value_any_more(driver: str) -> None:
    shown = CardMetrics(driver, NODE)
    shown.update([H100], CardUse(claims=[gpu_partition(H100, "3g.40gb", 0)]))
    shown.update([], CardUse())
    assert value("kerf_partitions", driver, cut="3g.40gb", holder="claims") is None
    assert value("kerf_free_partitions", driver, cut="3g.40gb") is None
    assert value("kerf_card_units", driver) is None


def test_each_card_has_figures_of_its_own(driver: str) -> None:
    second = replace(H100, uuid="GPU-second", index=1)
    kept = [gpu_partition(H100, "1g.10gb", 0), gpu_partition(second, "1g.10gb", 4)]
    held = [gpu_partition(second, "1g.10gb", 5), gpu_partition(second, "1g.10gb", 6)]
    use = CardUse(claims=[gpu_partition(second, "3g.40gb", 0)], foreign=held, reserved=kept)
    CardMetrics(driver, NODE).update([H100, second], use)
    expected = {
        "kerf_card_units": (8, 8),
        "kerf_free_units": (7, 1),
        "kerf_reserved_units": (1, 1),
        "kerf_stranded_units": (0, 1),
    }
    figures = {name: (value(name, driver), value(name, driver, card="gpu-1")) for name in expected}
    assert figures == expected
    for name, uuid in (("gpu-0", H100.uuid), ("gpu-1", "GPU-second")):
        assert value("kerf_card_info", driver, card=name, uuid=uuid, model="h100-80gb-sxm") == 1
        assert value("kerf_card_partitions", driver, card=name, cut="3g.40gb") == 2
    assert value("kerf_partitions", driver, card="gpu-1", cut="1g.10gb", holder="others") == 2


def test_each_card_has_room_of_its_own(driver: str) -> None:
    second = replace(H100, uuid="GPU-second", index=1)
    CardMetrics(driver, NODE).update([H100, second], CardUse(claims=[gpu_partition(second, "3g.40gb", 0)]))
    assert value("kerf_free_partitions", driver, cut="3g.40gb") == 2
    assert value("kerf_free_partitions", driver, card="gpu-1", cut="3g.40gb") == 1
    assert value("kerf_partitions", driver, card="gpu-1", cut="3g.40gb", holder="claims") == 1


def test_what_is_kept_for_extended_resources_is_not_free_and_in_use_only_once_containers_have_it(driver: str) -> None:
    kept = [gpu_partition(H100, "1g.10gb", start) for start in range(4)]
    shown = CardMetrics(driver, NODE)
    for given in (0, 3):
        shown.update([H100], CardUse(containers=kept[:given], reserved=kept[given:]))
        assert value("kerf_free_partitions", driver, cut="1g.10gb") == 3
        assert value("kerf_free_partitions", driver, cut="3g.40gb") == 1
        assert value("kerf_free_partitions", driver, cut="whole") == 0
        assert value("kerf_free_units", driver) == 4
        assert value("kerf_reserved_units", driver) == 4 - given
        assert value("kerf_partitions", driver, cut="1g.10gb", holder="containers") == (given or None)
    assert value("kerf_partitions", driver, cut="1g.10gb", holder="claims") is None
