"""What is mutated, and what is known of it: ``groups.toml`` and ``equivalent.toml``."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.mutants.operators import Mutant, find_mutants

_TREE: Final = Path(__file__).parents[2]
_GROUPS: Final = Path(__file__).with_name("groups.toml")
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Modules, and the test files that judge them, as paths from the root of the tree."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]

    def find_mutants(self) -> list[Mutant]:
        return [mutant for path in self.modules for mutant in find_mutants(path, (_TREE / path).read_bytes())]


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalentMutant:
    """An entry of ``equivalent.toml``: a change that no test can notice, and why."""

    path: str
    function: str
    before: str
    after: str
    reason: str
    occurrence: int = 1
    """Which one of the same changes of the function; the first, where there is one."""

    def is_of(self, mutant: Mutant) -> bool:
        wanted = (self.path, self.function, self.before, self.after, self.occurrence)
        return wanted == (mutant.path, mutant.function, mutant.before, mutant.after, mutant.occurrence)


def read_groups() -> list[Group]:
    document = tomllib.loads(_GROUPS.read_text(encoding="utf-8"))
    return [
        Group(name=name, modules=_expand(table["modules"]), tests=tuple(table["tests"]))
        for name, table in document.items()
    ]


def read_equivalent() -> list[EquivalentMutant]:
    document = tomllib.loads(_EQUIVALENT.read_text(encoding="utf-8"))
    return [EquivalentMutant(path=path, **entry) for path, entries in document.items() for entry in entries]


def join_groups(groups: Sequence[Group]) -> Group:
    """Return all modules of ``groups`` with all tests of Kerf."""
    modules = dict.fromkeys(path for group in groups for path in group.modules)
    return Group(name="every-test", modules=tuple(modules), tests=("tests",))


def _expand(patterns: Sequence[str]) -> tuple[str, ...]:
    found = (str(file.relative_to(_TREE)) for pattern in patterns for file in sorted(_TREE.glob(pattern)))
    return tuple(dict.fromkeys(found))
