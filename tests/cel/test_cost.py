"""Upper bounds of the cost of expressions, by hand; ``test_recorded`` has many more, from Kubernetes itself."""

import pytest

from kerf_dra.driver.cel.cost import MAX_COST, estimate_cost
from kerf_dra.driver.cel.environment import STORED, Dialect

A = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ("device.driver == device.driver", 2 + 2 + 7),  # a look-up is 1, a comparison a tenth of 63 characters
        ("has(device.driver)", 1),
        (f"has({A}.model)", 3),
        (f"{A}.model == 'x'", 4 + 1),
        ("[1, 2, 3].all(x, x > 0)", 10 + 1 + 3 * (2 + 2 + 1)),
        ("cel.bind(a, device.driver, a == a)", 10 + 2 + (1 + 1 + 7)),
        (f"{A}.ver.isGreaterThan(semver('1.0.0'))", 4 + 1 + 1),
        ("'a'.matches('[a-z]+')", 1 * 2),
        ("lists.range(1000).distinct() == []", (1000 + 11) + (2 * 1000 * 1000 + 11) + 10),
        ("device.attributes.all(d, device.attributes[d].all(k, k.size() > 0))",
         2 + 1 + 32 * (2 + 1 + (4 + 1 + 32 * (2 + 1 + 1 + 1 + 1)))),
    ],
)  # fmt: skip
def test_costs_add_up_as_in_the_api_server(expression: str, cost: int) -> None:
    assert estimate_cost(expression) == cost


@pytest.mark.parametrize(
    ("expression", "is_too_costly"),
    [
        (f"{A}.all(x, {A}.all(y, {A}.all(z, x == y || y == z)))", False),
        (f"{A}.all(x, {A}.all(y, {A}.all(z, {A}.all(w, w == z))))", True),
        ('["a"].map(t, t + t).max() == "b"', True),  # nobody knows how long it is
    ],
)
def test_loops_in_loops_and_unknown_lengths_are_what_costs(expression: str, is_too_costly: bool) -> None:
    cost = estimate_cost(expression)
    assert cost is not None
    assert (cost > MAX_COST) is is_too_costly


def test_an_expression_that_does_not_compile_has_no_cost() -> None:
    assert estimate_cost("device.") is None
    assert estimate_cost("isIP('10.0.0.1')") is None
    assert estimate_cost(f"{A}.tags.includes(1)", Dialect(consumable_capacity=True, list_type_attributes=False)) is None
    assert estimate_cost(f"{A}.tags.includes(1)", STORED) is not None


@pytest.mark.parametrize("count", [10, 100, 2000])
def test_deep_expressions_have_a_cost_or_none_and_no_end_of_the_stack(count: int) -> None:
    assert estimate_cost("!(" * count + "true" + ")" * count) in (count, None)
    assert estimate_cost("0" + " + 1" * count + " > 0") in (count + 1, None)
