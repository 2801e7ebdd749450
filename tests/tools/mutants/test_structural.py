"""The structural operators: what each makes of a function, and what it leaves alone."""

import ast
from pathlib import Path

import pytest

from tools.mutants.groups import read_groups
from tools.mutants.operators import Mutant, find_mutants
from tools.mutants.samples import OPERATORS
from tools.mutants.structural import STRUCTURAL, STRUCTURAL_ONLY

TREE = Path(__file__).parents[3]
NO_CONTEXT = '__import__("contextlib").nullcontext()'

CASES = [
    ("block removed", "if a: b()", ["pass"]),
    ("block removed", "if a: b()\n    elif c: d()", ["pass", "pass"]),
    ("block removed", "for a in b: c()", ["pass"]),
    ("block removed", "while a: b()", ["pass"]),
    ("jump removed", "while a: break", ["while a: pass"]),
    ("jump removed", "for a in b: continue", ["for a in b: pass"]),
    ("jump removed", "if a: return b\n    return c", ["if a: pass"]),
    ("jump removed", "with a: return b", []),
    ("reassignment removed", "a = b\n    if c: a = d", ["pass", "if c: pass"]),
    ("reassignment removed", "a = b", []),
    ("reassignment removed", "self = a", ["pass"]),
    ("arguments swapped", "a(b, c)", ["a(c, b)"]),
    ("arguments swapped", "a(b, (c), d)", ["a(c, (b), d)", "a(b, (d), c)"]),
    ("arguments swapped", "a(b(), *c)", []),
    ("arguments swapped", "a(b, b)", []),
    ("arguments swapped", "max(a, b)", []),
    ("arguments swapped", "isinstance(a, b)", []),
    ("context dropped", "with self._lock: a()", [f"with {NO_CONTEXT}: a()"]),
    ("context dropped", "with a, b: c()", [f"with {NO_CONTEXT}, b: c()", f"with a, {NO_CONTEXT}: c()"]),
    ("context dropped", "with open(a) as file: file.read()", []),
    ("suppress dropped", "with suppress(KeyError): a()", [f"with {NO_CONTEXT}: a()"]),
    ("suppress dropped", "try: a()\n    except KeyError: pass", ["except (): pass"]),
    ("suppress dropped", "try: a()\n    except KeyError as error: raise B from error", []),
    ("collection emptied", "a = [b, c]", ["a = []"]),
    ("collection emptied", "a = [b for b in c]", ["a = []"]),
    ("collection emptied", "a = {b: c}", ["a = {}"]),
    ("collection emptied", "a = {b for b in c}", ["a = set()"]),
    ("collection emptied", "a = any(b for b in c)", ["a = any(iter(()))"]),
    ("collection emptied", "a = (b,)", ["a = ()"]),
    ("collection emptied", "a = (*b, c)", ["a = ()"]),
    ("collection emptied", "a = tuple(b)", ["a = tuple()"]),
    ("collection emptied", "a = sorted(b, key=c)", ["a = []"]),
    ("collection emptied", "a = []", []),
    ("collection emptied", "a = (b, c)", []),
    ("collection emptied", "[a, b] = c", []),
    ("collection emptied", "a = set(b async for b in c)", []),
    ("first element only", "a = [b async for b in c]", []),
    ("first element only", "for a in b: c()", ['for a in __import__("itertools").islice((b), 1): c()']),
    ("first element only", "for a in b, c: d()", ['for a in __import__("itertools").islice((b, c), 1): d()']),
    ("first element only", "a = [b for b in c]", ['a = [b for b in __import__("itertools").islice((c), 1)]']),
    ("any, all", "a = any(b)", ["a = all(b)"]),
    ("any, all", "a = all(b)", ["a = any(b)"]),
    ("last alternative dropped", "a = b or c or (d and e)", ["a = b or c"]),
    ("last alternative dropped", "if a: b()\n    else: c()", ["if a: b()"]),
    ("last alternative dropped", "if a: b()\n    elif c: d()", []),
    (
        "last alternative dropped",
        "match a:\n        case 1: b()\n        case _: c()",
        ["case 1: b()"],
    ),
    ("last alternative dropped", "match a:\n        case 1 | 2: b()", ["case 1: b()"]),
    ("last alternative dropped", "a = b in (c, d)", ["a = b in (c,)"]),
    ("last alternative dropped", "a = b not in {c, d, e}", ["a = b not in {c, d,}"]),
    ("last alternative dropped", "a = isinstance(b, C | D | E)", ["a = isinstance(b, C | D)"]),
    ("last alternative dropped", "try: a()\n    except (B, C): pass", ["except (B,): pass"]),
    ("compound condition negated", "if a and b: c()", ["if (not (a and b)): c()"]),
    ("compound condition negated", "while a < b: c()", ["while (not (a < b)): c()"]),
    ("compound condition negated", "a = b if c < d else e", ["a = b if (not (c < d)) else e"]),
    ("compound condition negated", "a = [b for b in c if b]", ["a = [b for b in c if (not (b))]"]),
]


def structural(body: str) -> list[Mutant]:
    found = find_mutants("module.py", f"def f(self):\n    {body}\n".encode())
    return [mutant for mutant in found if mutant.operator in STRUCTURAL_ONLY]


@pytest.mark.parametrize(("operator", "body", "expected"), CASES)
def test_each_structural_operator_makes_these_changes_and_no_others(
    operator: str, body: str, expected: list[str]
) -> None:
    source = f"def f(self):\n    {body}\n".encode()
    found = [mutant for mutant in structural(body) if mutant.operator == operator]
    assert [mutant.after for mutant in found] == expected
    for mutant in found:
        assert ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))


def test_each_structural_operator_has_cases_with_and_without_a_change() -> None:
    assert {operator for operator, _, expected in CASES if expected} == STRUCTURAL_ONLY


@pytest.mark.parametrize(
    "source",
    [
        b"TABLE = {1: (2,), **{a: b for a, b in c}}\n",
        b"class A:\n    held = [b for b in c if b or d]\n",
        b"def f():\n    assert any(a, b)\n",
        b"def f():\n    _log.info(a, [b, c])\n",
        b"def f(a=(1,)): ...\n",
    ],
)
def test_tables_assertions_the_log_and_defaults_are_left_alone(source: bytes) -> None:
    assert {mutant.operator for mutant in find_mutants("module.py", source)}.isdisjoint(STRUCTURAL_ONLY)


def test_a_handler_is_tried_by_the_tests_that_reach_it() -> None:
    (mutant,) = structural("try: a()\n    except KeyError: pass")
    assert mutant.lines == (3,), "not by all that execute the line of try"


def test_every_structural_mutant_of_kerf_is_python_and_each_operator_has_one() -> None:
    seen = set()
    for path in sorted({path for group in read_groups() for path in group.modules})[::5]:
        source = (TREE / path).read_bytes()
        for mutant in find_mutants(path, source)[::7]:
            if OPERATORS["structural"](mutant):
                seen.add(mutant.operator)
                ast.parse(mutant.apply(source))
    assert seen == STRUCTURAL
