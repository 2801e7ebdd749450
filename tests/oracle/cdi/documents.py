"""A generator of CDI spec documents in YAML, valid and invalid, in many styles of notation."""

import json
from random import Random
from typing import TypeAlias

from kerf_dra.cdi.document.fields import FIELDS, RANGES, ListOf, Scalar, Shape, TextMap
from kerf_dra.cdi.spec import Spec

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | PlainScalar"


class PlainScalar(str):
    """A plain scalar (YAML 1.2, section 7.3.3): text that is written without quotes."""

    __slots__ = ()


# Valid values by key, so that most documents pass the first checks.
_VALID: dict[str, tuple[str, ...]] = {
    "cdiVersion": ("1.1.0",) * 12 + ("v1.1.0", "0.3.0", "0.5.0", "0.6.0", "0.7.0", "1.0.0", "1.2.0", "0.2.0"),
    "kind": ("vendor.com/class", "v.co/cl.ass", "aa/bb", "a.b/c-d"),
    "env": ("A=b", "B=c=d", "C="),
    "hookName": ("prestart", "createRuntime", "poststop", "createContainer", "startContainer", "poststart"),
    "type": ("", "c", "b", "p", "u"),
    "permissions": ("", "r", "rwm"),
    "closID": ("", "x", "/"),
    "name": ("eth0", "net1", "net2"),
    "hostInterfaceName": ("ens0", "ens1", "ens2"),
}
_TEXTS = ("a", "/dev/x", "A=1", "", "v.co/c", "rw", "..", "0x10", "1.5", "é", "\U0001f600", "\x85", "\u2028x", "a\nb")
_SCALARS = tuple(
    PlainScalar(text)
    for text in (
        *("null", "~", "5", "0", "-1", "1.0", "1.5", "true", "yes", "0660", "4294967296", "1e3", ".inf", "-0.0", "<<"),
        *("2001-01-01", "word", "0b+1", "18446744073709551615", "! 5", "!!int 5", "!!str 5", "*a", "&a 5"),
    )
)
_NUMBERS = ("0", "1", "7", "432", "4294967295", "4294967296", "-1", "1.0", "0x10", "9223372036854775807", "1e2")
_EXTRA_KEYS = ("x", "enableCMT", "schema", "hostpath")


def generate_document(seed: int) -> str:
    """Return the document of ``seed``; a third of all are valid, and a third have few errors."""
    random = Random(seed)
    writer = _DocumentGenerator(random, noise=random.choice((0.0, 0.01, 0.05)))
    tree = writer.struct(Spec)
    devices = tree.get("devices")
    for index, device in enumerate(devices if isinstance(devices, list) else ()):
        if isinstance(device, dict) and not writer.makes_error():
            device["name"] = f"{random.choice(('d', '0', 'e-'))}{index}"
            device.setdefault("containerEdits", {}) or device.update(containerEdits={"env": ["A=b"]})
    return (writer.block(tree, 0).lstrip("\n") if random.random() < 0.5 else writer.flow(tree)) + "\n"


class _DocumentGenerator:
    """Builds document trees and serializes them, with errors at the rate ``noise``."""

    def __init__(self, random: Random, noise: float) -> None:
        self._random = random
        self._noise = noise

    def makes_error(self) -> bool:
        return self._random.random() < self._noise

    def struct(self, shape: type) -> dict[str, Tree]:
        fields: dict[str, Tree] = {}
        for row in FIELDS[shape]:
            if (row.required and not self.makes_error()) or self._random.random() < 0.3:
                key = row.key
                if self.makes_error():
                    folded = key.replace("s", "\u017f").replace("k", "\u212a")
                    key = self._random.choice((key.upper(), key.title(), folded))
                fields[key] = self._value(row.shape, row.key)
        if self.makes_error():
            fields[self._random.choice(_EXTRA_KEYS)] = self._random.choice(_SCALARS)
        return fields

    def _value(self, shape: Shape, key: str) -> Tree:
        choose = self._random.choice
        if self.makes_error():
            wrong: tuple[Tree, ...] = (*_SCALARS, [choose(_SCALARS)], {}, [])
            return choose(wrong)
        if isinstance(shape, ListOf):
            items = (
                self._value(shape.item, key) for _ in range(choose((1, 1, 2) if key == "devices" else (0, 1, 1, 2)))
            )
            return [PlainScalar("null") if self.makes_error() else item for item in items]
        if isinstance(shape, TextMap):
            return {choose(("a", "b.c/d", "no key!", "", "on")): choose(_TEXTS) for _ in range(choose((0, 1, 2)))}
        if shape is Scalar.TEXT:
            return (
                choose((*_TEXTS, *_SCALARS))
                if self.makes_error()
                else choose(_VALID.get(key, ("/a", "/b", "/dev/null")))
            )
        if shape is Scalar.FLAG:
            return PlainScalar(choose(("true", "false")))
        if shape in RANGES:
            return PlainScalar(choose(_NUMBERS) if self.makes_error() else "7")
        assert isinstance(shape, type)
        return self.struct(shape)

    def _scalar(self, text: str) -> str:
        if isinstance(text, PlainScalar):
            return str(text)
        style = self._random.random()
        if style < 0.1 and text.isascii() and text.isprintable() and text and not set(text) & set(":,"):
            return text
        if style < 0.2 and text.isprintable():
            return "'" + text.replace("'", "''") + "'"
        return json.dumps(text, ensure_ascii=style < 0.3)

    def flow(self, tree: Tree) -> str:
        if isinstance(tree, dict):
            return "{" + ", ".join(f"{self._scalar(key)}: {self.flow(item)}" for key, item in tree.items()) + "}"
        if isinstance(tree, list):
            return "[" + ", ".join(map(self.flow, tree)) + "]"
        return self._scalar(tree)

    def block(self, tree: Tree, indent: int) -> str:
        if not tree or not isinstance(tree, dict | list) or self._random.random() < 0.1:
            return self.flow(tree)
        margin = "\n" + " " * indent
        if isinstance(tree, dict):
            return "".join(f"{margin}{self._scalar(key)}: {self.block(item, indent + 2)}" for key, item in tree.items())
        return "".join(f"{margin}- {self.block(item, indent + 2).lstrip()}" for item in tree)
