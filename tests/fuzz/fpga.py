"""Inputs for what reads descriptions of FPGA shells and images: real documents, cut, spliced, with values changed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.families.fpga.descriptions import build_descriptions
from kerf_dra.driver.families.fpga.refused_images import format_refusals, parse_refusals
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import read_description_files

_ID: Final = "9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701"
_OTHER: Final = "77e2c5f4-3a1d-5be8-a2c9-d0b4e6f81903"
_FILE: Final = {"file": "aes.gbs", "sha256": "a0" * 32, "slots": [[0], [1]]}
_SHELL: Final[dict[str, Any]] = {
    "apiVersion": "kerf.dev/v1alpha1",
    "kind": "FpgaShell",
    "metadata": {"name": "lab"},
    "spec": {"interfaceUUID": _ID, "slots": [{"lut": 1}, {}], "blank": {"afuID": _OTHER, "files": [_FILE]}},
}
_IMAGE: Final[dict[str, Any]] = {
    "apiVersion": "kerf.dev/v1alpha1",
    "kind": "FpgaImage",
    "metadata": {"name": "aes"},
    "spec": {"function": "aes", "interfaceUUID": _ID, "afuID": _ID, "loadSeconds": 0.4, "files": [_FILE]},
}
_JUNK: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 3, 1e308, float("nan"), 2**70, "", "x", "../x", "https://h/x", "\ud800", [], [[]], [[0, 1]], {},
    {"a": 1}, [[2**40]], "x" * 5000,
)  # fmt: skip
_PIECES: Final = (
    b"{",
    b"[",
    b'"',
    b":",
    b",",
    b"}",
    b"&a",
    b"*a",
    b"!!python/object",
    b"\xff",
    b"\0",
    b"[" * 3000,
    b"- ",
)


def target(folder: Path) -> Callable[[bytes], None]:
    """Return what reads an input beside a shell that is right: that shell is never lost, and every fault is said."""
    (folder / "b.yaml").write_text(json.dumps(_SHELL))

    def read(data: bytes) -> None:
        (folder / "c.yaml").write_bytes(data)
        found, problems = read_description_files(folder)
        descriptions = build_descriptions(found)
        assert _ID in descriptions.shells
        assert all(isinstance(problem, str) for problem in (*problems, *descriptions.problems))
        for described in descriptions.shells.values():
            for (function, slots), image in described.images.items():
                assert slots.start + slots.size <= len(described.shell.slots)
                assert ".." not in image.file.split("/")
                assert not image.url or image.url.startswith("https://")
                assert described.shell.function(function) is not None
        text = format_refusals(parse_refusals(data.decode("latin-1")))
        assert len(text) <= 64

    return read


def generated(seed: int) -> bytes:
    """Return the input of a seed."""
    random_ = random.Random(seed)
    document = json.loads(json.dumps(random_.choice((_SHELL, _IMAGE, _IMAGE))))
    for _ in range(random_.randrange(4)):
        places = list(_places(document))
        holder, key = random_.choice(places)
        if random_.random() < 0.3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(random_.choice(_JUNK))
    data = bytearray(json.dumps(document, ensure_ascii=random_.random() < 0.9).encode(errors="surrogatepass"))
    for _ in range(random_.choice((0, 0, 1, 3))):
        at = random_.randrange(len(data) + 1)
        data[at : at + random_.randrange(3)] = random_.choice(_PIECES)
    return bytes(data) if random_.random() < 0.9 else bytes(data[: random_.randrange(len(data) + 1)])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _places(value[key])
    if not keys and isinstance(value, dict):
        value["added"] = None
        yield value, "added"
