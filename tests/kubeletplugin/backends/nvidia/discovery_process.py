"""A process that discovers the NVIDIA cards of a machine twice, and prints what it found and logged, as JSON.

``python -m tests.kubeletplugin.backends.nvidia.discovery_process MACHINE``. A process has one library for its life: one
that is not the stand-in's own needs a process of its own.
"""

import json
import logging
import sys
from pathlib import Path

from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig


class Messages(logging.Handler):
    """The messages that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def discover(machine: Path) -> None:
    logged = Messages()
    logging.getLogger().addHandler(logged)
    root = str(machine / "driver")
    backend = NvidiaBackend(NvidiaConfig(driver_root=root, system_root=str(machine), host_driver_root=root))
    backend.open()
    surveyed: list[str] = []
    for _ in range(2):
        surveyed = [backend.survey(card.uuid).card_uuid for card in backend.discover()]
        backend.wait_for_events(0)
    backend.close()
    print(json.dumps({"cards": surveyed, "logged": logged.messages}))


if __name__ == "__main__":
    discover(Path(sys.argv[1]))
