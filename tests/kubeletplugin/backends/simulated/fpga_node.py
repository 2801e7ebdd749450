"""A plugin on a machine with simulated FPGA cards, for tests of what all backends for FPGAs do."""

import json
from pathlib import Path

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend, open_fpgas
from kerf_dra.driver.testing import MachineUnderTest
from tests.fakes.dfl.machine import AES_ID, FFT_ID, INTERFACE, build_document
from tests.kubeletplugin.backends.fpga.node import FpgaNode


class SimulatedFpgas(MachineUnderTest):
    """Two cards with the shell of the stand-ins for DFL cards; they take no time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "descriptions").mkdir(parents=True)
        self.describe(build_document("FpgaShell", "lab", interfaceUUID=INTERFACE, slots=[{"lut": 60000}] * 4))
        self.describe_function("aes", AES_ID, [0, 1, 2, 3])
        self.describe_function("fft", FFT_ID, [0, 1])
        cards = [{"kind": "fpga", "shell": "lab", "count": 2}]
        config = {"state": "state", "pace": 0, "descriptionFolder": "descriptions", "cards": cards}
        (folder / "cards.yaml").write_text(json.dumps(config))

    def open_backend(self) -> SimulatedBackend:
        return open_fpgas(self.folder / "cards.yaml")

    def describe(self, document: JsonObject) -> None:
        name = f"{document['kind']}-{document['metadata']['name']}.yaml"
        (self.folder / "descriptions" / name).write_text(json.dumps(document))

    def describe_function(self, name: str, afu_id: str, slots: list[int], **fields: object) -> None:
        """Describe a function with one image for any of ``slots``; no simulated card reads it."""
        file = {"file": f"{name}.gbs", "sha256": "a0" * 32, "slots": [[slot] for slot in slots]}
        spec = {"function": name, "interfaceUUID": INTERFACE, "afuID": afu_id, "loadSeconds": 0.4, "files": [file]}
        self.describe(build_document("FpgaImage", name, **{**spec, **fields}))


class SimulatedNode(FpgaNode):
    """A node with simulated FPGA cards."""

    def __init__(self, folder: Path) -> None:
        self.machine = SimulatedFpgas(folder / "machine")
        super().__init__(self.machine)

    def read_state(self) -> str:
        """What the first card has in its slots."""
        file = self.machine.folder / "state" / "fpga-0.json"
        return file.read_text() if file.exists() else ""
