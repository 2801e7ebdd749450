"""Selectors that are no CEL are found in documents, with what to write."""

from typing import Any

import pytest

from kerf_dra.driver.scheduling.selector_problems import find_selector_problems

PROFILE = 'device.attributes["gpu.example.com"].profile'
MEMORY = 'device.capacity["gpu.example.com"].memory'


def selectors(*expressions: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": each}} for each in expressions]


ADVICE = [
    (f'{PROFILE} = "1g.10gb"', "compare with =="),
    (f'{PROFILE} == "a" and {PROFILE} != "b"', "write && between conditions"),
    (f'{PROFILE} == "a" & {PROFILE} != "b"', "write && between conditions"),
    (f'{PROFILE} == "a" or {PROFILE} == "b"', "write || between conditions"),
    (f'{PROFILE} == "a', "close the string"),
    (f'{MEMORY} >= quantity("10Gi")', "compare amounts with compareTo(quantity(...)) >= 0"),
    ('device.attribute["gpu.example.com"].profile == "a"', "a selector knows device.driver, device.attributes"),
    ('profile == "a"', "a selector knows device.driver, device.attributes"),
    (f"{PROFILE} == ", "correct it to a condition such as "),
    (PROFILE + ".size()", "correct it to a condition such as "),
]


@pytest.mark.parametrize(("expression", "advice"), ADVICE)
def test_a_selector_that_does_not_compile_is_reported_with_what_to_write(expression: str, advice: str) -> None:
    """The API server refused the object, and the whole demo ended with its answer and with logs."""
    [problem] = find_selector_problems({"spec": {"selectors": selectors(expression)}})
    assert problem.path == "spec.selectors[0].cel.expression"
    assert problem.message.startswith("does not compile: ")
    assert advice in problem.message
    assert "<input>" not in problem.message, "a column of another text"


def test_every_selector_of_a_template_is_found() -> None:
    bad = selectors("device.driver = 'a'")
    requests = [
        {"name": "a", "exactly": {"selectors": [*selectors("true"), *bad]}},
        {"name": "b", "firstAvailable": [{"name": "x", "selectors": bad}]},
        {"name": "flat", "selectors": bad},
    ]
    config = [{"opaque": {"driver": "d", "parameters": {"selectors": bad}}}]
    body = {"spec": {"spec": {"devices": {"requests": requests, "config": config}}}}
    path = "spec.spec.devices.requests"
    assert [problem.path for problem in find_selector_problems(body)] == [
        f"{path}[0].exactly.selectors[1].cel.expression",
        f"{path}[1].firstAvailable[0].selectors[0].cel.expression",
        f"{path}[2].selectors[0].cel.expression",
    ]


def test_selectors_that_compile_and_values_of_other_types_have_no_problem() -> None:
    good = selectors(f'{PROFILE} == "1g.10gb" && {MEMORY}.compareTo(quantity("1Gi")) >= 0')
    assert [*find_selector_problems({"spec": {"selectors": good}})] == []
    assert [*find_selector_problems({"spec": {"selectors": [{"cel": {"expression": 7}}, {"cel": None}, 3]}})] == []
    assert [*find_selector_problems({})] == []
