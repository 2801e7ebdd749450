"""Handles of all backends, in the form in which checkpoints keep them."""

import json
from typing import Any, Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.dfl import handles as dfl
from kerf_dra.driver.kubeletplugin.backends.discovered import handles as discovered
from kerf_dra.driver.kubeletplugin.backends.handle_codec import HandleCodec
from kerf_dra.driver.kubeletplugin.backends.intel import handles as intel
from kerf_dra.driver.kubeletplugin.backends.nvidia import handles as nvidia
from kerf_dra.driver.kubeletplugin.backends.simulated import handles as simulated
from kerf_dra.driver.kubeletplugin.backends.slots import handles as slots
from kerf_dra.driver.kubeletplugin.backends.xrt import handles as xrt
from tools.sources import ROOT

STORED: Final = (ROOT / "tests/data/stored_handles.jsonl").read_text().splitlines()
"""A handle of each kind as a checkpoint has it, written before the backends shared one codec. The file does not change:
fields that are added later are missing in it."""
CODECS: Final[dict[str, HandleCodec[Any]]] = {
    "dfl": dfl.HANDLES,
    "xrt": xrt.HANDLES,
    "slots": slots.HANDLES,
    "fpga": simulated.HANDLES,
    "gpu": simulated.HANDLES,
    "intel": intel.HANDLES,
    "nvidia": nvidia.HANDLES,
    "discovered": discovered.HANDLES,
}
"""By the tag of the handle."""


@pytest.mark.parametrize("text", STORED, ids=list(CODECS))
def test_a_stored_handle_is_read_and_written_again_to_the_byte(text: str) -> None:
    stored = json.loads(text)
    codec = CODECS[stored["kind"]]
    assert json.dumps(codec.encode(codec.decode(stored))) == text


@pytest.mark.parametrize(
    ("tag", "owner"), [("dfl", "the backend dfl"), ("nvidia", "the backend nvidia"), ("gpu", "the simulated backend")]
)
def test_the_handle_of_another_backend_is_refused(tag: str, owner: str) -> None:
    for text in STORED:
        stored = json.loads(text)
        if CODECS[stored["kind"]] is not CODECS[tag]:
            with pytest.raises(HardwareRefusedError, match=f"^this is not a handle of {owner}: Invalid value"):
                CODECS[tag].decode(stored)
