"""A backend whose cards say what they are used for, as a test says."""

import threading
from collections.abc import Sequence
from pathlib import Path

from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample, Handle
from kerf_dra.driver.partitions.geometry import Card
from tests.fakes.hardware import GATE_S, FakeBackend

UNUSED = DeviceSample(memory_bytes=0, processes=0)


class SampledFakeBackend(FakeBackend):
    """A ``FakeBackend`` that is a ``SampledBackend``."""

    def __init__(self, cards: Sequence[Card], file: Path | None = None) -> None:
        super().__init__(cards, file)
        self.energy_mj: dict[str, int | None] = {card.uuid: 0 for card in cards}
        self.use: dict[str, DeviceSample] = {}
        """By device; others are unused."""
        self.sample_errors: dict[str, Exception] = {}
        """By card."""
        self.wrong: CardSample | None = None
        """What it says of all cards in place of their use."""
        self.sampled: list[str] = []
        self.hangs = threading.Event()
        self.is_released = threading.Event()

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        self.sampled.append(card_uuid)
        if self.hangs.is_set():
            self.is_released.wait(GATE_S)
        if error := self.sample_errors.get(card_uuid):
            raise error
        if self.wrong is not None:
            return self.wrong
        devices = tuple(self.use.get(handle["device"], UNUSED) for handle in handles)
        return CardSample(energy_mj=self.energy_mj[card_uuid], devices=devices)
