"""The bound of the work of an expression: what grows counts, what selectors do in practice is far below the limit."""

import pytest

from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.driver.cel.checked_ast import read_checked_expression
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.cel.environment import STORED, get_environment
from kerf_dra.driver.cel.work_bound import MAX_WORK, bound_work


def work_of(expression: str) -> int:
    return bound_work(read_checked_expression(get_environment(STORED).compile(expression)))


@pytest.mark.parametrize(
    ("begin", "step", "factor"),
    [
        ("[[1]]", ".map(a, a + a)", 2),
        ("[[1]]", ".map(a, [a, a])", 2),
        ("[[1]]", ".map(a, [a, a, a])", 3),
        ("['a']", ".map(a, a + a)", 2),
        ("[{'a': 1}]", ".map(a, {'x': a, 'y': a})", 2),
        ("[[1]]", ".map(a, cel.bind(b, a, b + b))", 2),
        ("[[1]]", ".map(a, true ? a + a : a)", 2),
        ("[[1]]", ".map(a, a)", 1),
        ("[[1]]", ".filter(a, a.size() > 0)", 1),
    ],
)
def test_work_grows_with_each_step_as_the_value_does(begin: str, step: str, factor: int) -> None:
    ten, twenty = work_of(begin + step * 10 + " == []"), work_of(begin + step * 20 + " == []")
    if factor == 1:
        assert twenty < 3 * ten
    else:
        assert twenty > factor**10 * ten / 2


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.kerf.dev'].tags.exists(x, x.matches('^[a-z0-9]{1,63}(-[a-z]{2,4})?$'))",
        "device.attributes['gpu.kerf.dev'].tags.all(x, ['a', 'b', 'c'].exists(y, x.startsWith(y)))",
        "device.attributes['gpu.kerf.dev'].tags.map(x, x.split('-')[0]).exists(x, x == 'a')",
        "device.attributes['gpu.kerf.dev'].tags.map(x, x + '.example.com').filter(x, x.size() > 3).size() >= 0",
        "[1, 2, 3, 4].all(x, [1, 2, 3, 4].all(y, [1, 2, 3, 4].all(z, x + y + z > 0)))",
        " && ".join(["device.attributes['gpu.kerf.dev'].model.lowerAscii().contains('h100')"] * 100),
        f"device.attributes['gpu.kerf.dev'].model in [{', '.join(repr(f'model-{n}') for n in range(600))}]",
    ],
)
def test_what_selectors_do_is_far_below_the_limit(expression: str) -> None:
    assert work_of(expression) < MAX_WORK / 5


def test_what_is_below_the_limit_is_evaluated() -> None:
    device = Device(name="d", attributes={"tags": Attribute(strings=("a-1", "b-2"))})
    selector = compile_selector("device.attributes['d.example'].tags.map(x, [x, x] + [x]).all(x, x.size() == 3)")
    assert selector.matches("d.example", device)
