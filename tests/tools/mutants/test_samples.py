"""Samples of mutants: each seed has its own, and a sample over groups has some of each group and operator."""

from collections import Counter

from tools.mutants.operators import find_mutants
from tools.mutants.samples import OPERATORS, take, take_over_groups

LARGE = find_mutants("large.py", b"def f():\n" + b"".join(b"    call%d(a, b)\n" % number for number in range(40)))
SMALL = find_mutants("small.py", b"def f():\n    for a in b:\n        call(a, c)\n")


def test_a_sample_is_the_same_for_one_seed_and_another_for_another_one() -> None:
    assert take(LARGE, 1, 10) == take(reversed(LARGE), 1, 10)
    assert take(LARGE, 1, 10) != take(LARGE, 2, 10)
    assert len(take(LARGE, 1, 0)) == len(LARGE), "0: all"


def test_a_sample_over_groups_takes_each_operator_of_each_group_in_turn() -> None:
    taken = take_over_groups({"large": LARGE, "small": SMALL}, 1, 8)
    assert {name: len(mutants) for name, mutants in taken.items()} == {"large": 4, "small": 4}
    assert set(Counter(mutant.operator for mutant in taken["large"]).values()) == {2}
    assert {mutant.operator for mutant in taken["small"]} == {mutant.operator for mutant in SMALL}
    assert take_over_groups({"large": LARGE, "small": SMALL}, 1, 8) == taken
    assert len(take_over_groups({"large": LARGE, "small": []}, 1, 1000)["large"]) == len(LARGE), "there are no more"


def test_each_kind_of_operators_has_its_mutants_and_simple_removed_statements_are_of_both() -> None:
    kinds = {kind: {mutant.operator for mutant in LARGE if is_of(mutant)} for kind, is_of in OPERATORS.items()}
    assert kinds == {"token": {"statement removed"}, "structural": {"statement removed", "arguments swapped"}}
