"""What is a mutant, what is left alone, and which tests try it."""

import ast
from pathlib import Path

import pytest

from tools.mutants.baseline import Baseline
from tools.mutants.groups import read_groups
from tools.mutants.operators import Mutant, find_mutants
from tools.mutants.structural import STRUCTURAL_ONLY

TREE = Path(__file__).parents[3]


def mutants(body: str) -> list[Mutant]:
    """Return the mutants of this module's operators: test_structural.py has the others."""
    found = find_mutants("module.py", f"def f():\n    {body}\n".encode())
    return [mutant for mutant in found if mutant.operator not in STRUCTURAL_ONLY]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {"return a <= b", "return None"}),
        ("return a is None", {"return a is not None", "return None"}),
        ("return (a) not in (b)", {"return (a) in (b)", "return None"}),
        ("return a and b and c", {"return a or b and c", "return a and b or c", "return None"}),
        ("return not a", {"return (a)", "return None"}),
        ("return a + 1", {"return a - 1", "return a + (2)", "return None"}),
        ("a += b", {"a -= b", "pass"}),
        ("a = True", {"a = False"}),
        ("raise ValueError from error", {"pass"}),
        ("await put(a)", {"pass"}),
        ("self.held = a", {"pass"}),
        ("if a: return", {"if not (a): return"}),
        ("while a < b: break", {"while a <= b: break", "while a < b: continue"}),
        ("for a in b: continue", {"for a in b: break"}),
        ("a = [b for b in c if b]", {"a = [b for b in c if True]"}),
        ("a = b if c else d", {"a = b if (not (c)) else d"}),
        ("a = delete(b, uid=c, version=d)", {"a = delete(b, version=d)", "a = delete(b, uid=c, )"}),
        ("a = lambda: 0", {"a = lambda: (1)"}),
    ],
)
def test_each_operator_changes_one_thing(body: str, expected: set[str]) -> None:
    assert {mutant.after for mutant in mutants(body)} == expected


@pytest.mark.parametrize(
    "body",
    [
        "assert a < b",
        "_log.info(a + b, c < d)",
        "a: int | None = b",
        "a = f'{b + 1}'",
        "a = zip(b, c, strict=True)",
        "a = Claim(name=b, uid=c)",
        "raise NotImplementedError",
        "return None",
        "a = 'text'",
        "def g(a: int = 3, *, b: bool = True): ...",
    ],
)
def test_what_no_test_should_notice_is_left_alone(body: str) -> None:
    assert mutants(body) == []


def test_settings_are_left_alone_and_decorators_are_not() -> None:
    source = (
        b"LIMIT: Final = 3\n\n@dataclass(frozen=True)\nclass A(Base, tag=True):\n"
        b"    a: int = 1\n    @cached\n    def b(self): ...\n"
    )
    assert [(mutant.function, mutant.before, mutant.after) for mutant in find_mutants("module.py", source)] == [
        ("A", "@cached", "")
    ]


def test_a_mutant_has_its_place_and_its_number_among_the_same_ones() -> None:
    first, second = find_mutants("module.py", b"class A:\n    def b(self):\n        check()\n        check()\n")
    assert (first.function, first.line, first.occurrence) == ("A.b", 3, 1)
    assert (second.function, second.line, second.occurrence) == ("A.b", 4, 2)
    assert first.rank(1) != first.rank(2)


def test_every_mutant_of_kerf_is_python() -> None:
    for path in sorted({path for group in read_groups() for path in group.modules})[::7]:
        source = (TREE / path).read_bytes()
        for mutant in find_mutants(path, source)[::11]:
            changed = mutant.apply(source)
            assert changed != source
            ast.parse(changed)


def test_the_tests_of_a_mutant_are_those_that_execute_its_line_of_its_module_and_fast_ones_first() -> None:
    (mutant,) = [mutant for mutant in mutants("a += b") if mutant.after == "pass"]
    own = "tests/test_module.py::test_slowest"
    lines = {1: frozenset({""}), 2: frozenset({"slow", "fast", own}), 3: frozenset({"other"})}
    known = Baseline(durations_s={own: 3.0, "slow": 2.0, "fast": 1.0, "other": 0.1}, tests={"module.py": lines})
    assert known.find_tests(mutant) == [own, "fast", "slow"]
    tried = Baseline(durations_s={own: 3.0, "fast": 1.0}, tests={})
    assert known.without(tried).find_tests(mutant) == ["slow"], "those that were tried are not tried twice"
    imported = find_mutants("module.py", b"LIMIT = a < b\n")[0]
    assert known.find_tests(imported) == [own, "other", "fast", "slow"], "all that execute anything of the module"
    assert Baseline(durations_s={}, tests={}).find_tests(mutant) == []
