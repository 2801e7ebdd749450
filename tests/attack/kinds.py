"""The kinds of attack: ``kinds.toml`` has a row for each, with what is tried, and the test that tries it.

A test with one kind tries it with every parameter it has. A test with several has one parameter for each, with the
kind's name as its id: by ``cases`` it gets the rows themselves, whose other fields are its data.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest

FILE: Final = Path(__file__).with_name("kinds.toml")
FOLDER: Final = "tests/attack/"

CaseT = TypeVar("CaseT", bound=msgspec.Struct)


class AttackTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One test, and the kinds that it tries."""

    group: str
    test: str
    """Its node id below ``tests/attack``, without parameters."""
    holds: str
    """What must hold, whatever is tried."""
    kinds: Mapping[str, Mapping[str, Any]]
    """The rows by name; the field ``tries`` says for people what is tried."""

    def find_kind(self, parameters: str) -> str | None:
        """Return the name of the kind that the test tries with ``parameters``, the brackets of its node id."""
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        return parameters if parameters in self.kinds else None


@cache
def load_tests() -> tuple[AttackTest, ...]:
    rows = tomllib.loads(FILE.read_text())["tests"]
    return msgspec.convert(rows, tuple[AttackTest, ...])


def find_test(node_id: str) -> tuple[AttackTest, str | None] | None:
    """Return the test of a node id with its kind; None: it is no test of attacks."""
    name, _, parameters = node_id.partition("[")
    for one in load_tests():
        if name == FOLDER + one.test:
            return one, one.find_kind(parameters.removesuffix("]"))
    return None


def cases(test: str, type_: type[CaseT]) -> list[Any]:
    """Return the rows of ``test`` as parameters of type ``type_``, which has a field for all they may have."""
    (one,) = (one for one in load_tests() if one.test == test)
    return [
        pytest.param(msgspec.convert({key: value for key, value in row.items() if key != "tries"}, type_), id=name)
        for name, row in one.kinds.items()
    ]
