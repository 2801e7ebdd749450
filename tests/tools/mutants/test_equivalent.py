"""Mutants that count as equivalent exist, and the table of groups names what there is."""

from pathlib import Path

import pytest

from tools.mutants.groups import EquivalentMutant, Group, read_equivalent, read_groups
from tools.mutants.operators import find_mutants

TREE = Path(__file__).parents[3]


@pytest.mark.parametrize("entry", read_equivalent(), ids=lambda entry: f"{entry.path} {entry.before}")
def test_an_equivalent_mutant_exists_and_has_a_reason(entry: EquivalentMutant) -> None:
    mutants = find_mutants(entry.path, (TREE / entry.path).read_bytes())
    assert any(entry.is_of(mutant) for mutant in mutants), "its line has changed: judge it anew"
    assert len(entry.reason.split()) > 3


@pytest.mark.parametrize("group", read_groups(), ids=lambda group: group.name)
def test_a_group_has_modules_and_tests(group: Group) -> None:
    assert group.modules
    for test in group.tests:
        path = test.removeprefix("--deselect=").partition("::")[0]
        assert (TREE / path).exists(), path
