"""What a backend samples of NVIDIA cards as they are: of each card, whole or with the instances that are on it."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import CardSample, Handle
from kerf_dra.driver.kubeletplugin.backends.nvidia.handles import HANDLES, NvidiaHandle
from kerf_dra.driver.kubeletplugin.backends.sample_validation import sample_card
from kerf_dra.driver.partitions.geometry import Card
from tests.gpu.cards import Cards

PAUSE_S = 0.3
"""Seconds between two samples: more than GPM and the counter of energy need, a tenth of a second each."""
SAMPLES = 4


def list_handles(cards: Cards, card: Card) -> Iterator[Handle]:
    """Yield handles as a prepare makes them: of the MIG devices that are there, or of the whole card."""
    instances = [one for one in cards.library.list_gpu_instances(card.uuid) if one.compute_instances]
    for one in instances:
        compute_id, uuid = one.compute_instances[0]
        yield HANDLES.encode(
            NvidiaHandle(
                card=card.uuid,
                device=f"gi-{one.id}",
                minor=card.index,
                uuid=uuid,
                instance=one.id,
                compute_instance=compute_id,
            )
        )
    mode = cards.library.read_mig_mode(card.uuid)
    if mode is None or not mode.is_on:
        yield HANDLES.encode(NvidiaHandle(card=card.uuid, device="whole", minor=card.index, uuid=card.uuid))


def test_a_sample_of_each_card_is_read_in_few_calls_and_energy_never_falls(
    cards: Cards, report: dict[str, Any]
) -> None:
    for card in cards.backend.discover():
        handles = list(list_handles(cards, card))
        samples: list[CardSample] = []
        for _ in range(SAMPLES):
            cards.library.calls.clear()
            began = time.perf_counter()
            samples.append(sample_card(cards.backend, card.uuid, handles))
            took_ms = (time.perf_counter() - began) * 1000
            report.setdefault("samples", []).append(
                {
                    "card": card.uuid,
                    "took_ms": round(took_ms, 3),
                    "calls": dict(Counter(cards.library.calls)),
                    "energy_mj": samples[-1].energy_mj,
                    "devices": [[one.memory_bytes, one.processes, one.busy] for one in samples[-1].devices],
                }
            )
            time.sleep(PAUSE_S)
        assert len(cards.library.calls) <= 5 + 3 * len(handles), "the list of processes is two calls of the library"
        check(cards, card, handles, samples)


def check(cards: Cards, card: Card, handles: list[Handle], samples: list[CardSample]) -> None:
    energies = [one.energy_mj for one in samples]
    assert energies == sorted(energies, key=lambda energy: energy or 0)
    assert (samples[-1].energy_mj or 0) > 0 or not cards.are_real, "a card that is on uses energy"
    for handle, device in zip(handles, samples[-1].devices, strict=True):
        assert device.memory_bytes is not None
        assert device.memory_bytes >= 0
        is_measured = cards.library.has_gpm(card.uuid) or "instance" not in handle or handle["instance"] is None
        assert (device.busy is not None) == is_measured
    if cards.library.has_gpm(card.uuid):
        assert all(one.busy is None for one in samples[0].devices), "there is nothing to compare with"


@pytest.mark.parametrize("pause_s", [0.0, PAUSE_S])
def test_two_samples_within_a_moment_say_nothing_of_the_activity(cards: Cards, pause_s: float) -> None:
    for card in cards.backend.discover():
        handles = list(list_handles(cards, card))
        if not cards.library.has_gpm(card.uuid) or not handles:
            continue
        sample_card(cards.backend, card.uuid, handles)
        time.sleep(pause_s)
        second = sample_card(cards.backend, card.uuid, handles)
        assert {one.busy is None for one in second.devices} == {pause_s == 0}
