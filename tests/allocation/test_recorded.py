"""Kubernetes' own answers, recorded (``tests/oracle/*/recorder.py``), without Go."""

import json
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.cel.compile import ExpressionCostError, UnsupportedExpressionError, compile_selector
from kerf_dra.driver.cel.cost import MAX_COST, estimate_cost
from tests.conformance.allocator import answer, compare
from tests.conformance.cel import disagreement_with

DATA = Path(__file__).parent.parent / "data" / "allocation"


def records(name: str) -> list[JsonObject]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", records("allocator.jsonl"), ids=lambda case: str(case["name"]))
def test_the_allocator_gives_the_devices_that_the_scheduler_gave(case: JsonObject) -> None:
    assert compare(case, answer(case)) is None


OTHERWISE: Final = {
    'quantity("1.5Gi").asInteger() == 1610612736': "every whole quantity is an integer here",
    'cel.bind(a, device.attributes, has(a["nope"].model))': "no domain is filled up there without any attribute",
}
"""Expressions on which we mean to differ."""


def test_expressions_cost_what_they_cost_there() -> None:
    """All but those that do not compile on one of the two sides."""
    known = {case["expression"]: case["expect"]["cost"] for case in records("cel.jsonl") if case["expect"]["cost"]}
    wrong = {text: cost for text, there in known.items() if (cost := estimate_cost(text)) not in (there, None)}
    assert not wrong
    assert sum(estimate_cost(text) is None for text in known) < 12
    assert any(cost > MAX_COST for cost in known.values())


def test_expressions_mean_what_they_meant_there() -> None:
    """All but those that are refused by name or for their cost, and those listed."""
    wrong = {
        case["expression"]: found
        for case in records("cel.jsonl")
        if not is_too_costly(case)
        and (found := disagreement_with(case)) is not None
        and "is not supported" not in found
    }
    assert wrong.keys() == OTHERWISE.keys(), wrong


def test_expressions_that_the_api_server_refuses_for_their_cost_are_refused_here() -> None:
    """The recorder evaluated them all the same: a person who had such a selector was told what it would select."""
    refused = [case for case in records("cel.jsonl") if is_too_costly(case)]
    assert len(refused) > 10
    for case in refused:
        with pytest.raises((ExpressionCostError, UnsupportedExpressionError)):
            compile_selector(case["expression"])


def is_too_costly(case: JsonObject) -> bool:
    return (case["expect"]["cost"] or 0) > MAX_COST
