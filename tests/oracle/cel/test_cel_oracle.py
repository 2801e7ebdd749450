"""Generated expressions, evaluated by Kubernetes' CEL and by ours: the same results, the same failures."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.api.wire import dec_hook
from kerf_dra.driver.cel.compile import (
    ExpressionCompileError,
    ExpressionCostError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
    compile_attribute,
    compile_selector,
)
from kerf_dra.driver.cel.cost import MAX_COST, estimate_cost
from tests.oracle.cel.expressions import (
    ALONE,
    DEVICES,
    DRIVER,
    LACKING,
    generate_costly_expression,
    generate_expression,
)
from tests.oracle.judge import Judge

pytestmark = pytest.mark.oracle

CASES = int(os.environ.get("KERF_ORACLE_CASES", "300"))
"""Few when pytest alone runs them; ``python -m tests.oracle cel --cases N`` sets the number."""
FIRST = int(os.environ.get("KERF_ORACLE_SEED", "0"))


DIFFERENT = ('quantity("1.5Gi").asInteger()', 'cel.bind(a, device.attributes, has(a["nope"]')
"""Expressions with one of these are not compared: what ``expressions.DIFFERENT`` says of us, and a map of domains that
is bound to a name, which is filled up there for a device with attributes and not for one without any."""
MOST_UNSUPPORTED = 0.02
"""The share of compositions that Kerf may call not supported, because nothing is compared then: of those that are
generated, 1.2 % have bound names in bound names that expand too far."""


def ours(text: str, device: JsonObject, *, derived: bool) -> object:
    value = msgspec.convert({"name": "d", **device}, Device, dec_hook=dec_hook)
    try:
        if derived:
            return compile_attribute(text).derive(DRIVER, value)
        return compile_selector(text).matches(DRIVER, value)
    except ExpressionCostError:
        return "costs too much"
    except ExpressionCompileError:
        return "does not compile"
    except ExpressionRuntimeError:
        return "fails"
    except UnsupportedExpressionError:
        return "not supported"


def theirs(answer: Mapping[str, Any]) -> object:
    if "compileError" in answer:
        return "does not compile"
    if "runtimeError" in answer:
        return "fails"
    if "attribute" in answer:
        return msgspec.convert(answer["attribute"], Attribute)
    return answer["matches"]


@pytest.mark.parametrize("derived", [False, True])
def test_generated_expressions_mean_what_they_mean_in_the_api_server(judge: Judge, derived: bool) -> None:
    disagreements: list[str] = []
    unsupported: set[str] = set()
    for seed in range(FIRST, FIRST + CASES + len(ALONE)):
        text = generate_expression(seed)
        if any(different in text for different in DIFFERENT):
            continue
        for device in DEVICES:
            record = {"expression": text, "derived": derived, "driver": DRIVER, "device": {"name": "d", **device}}
            wanted, got = theirs(judge.ask(record)), ours(text, device, derived=derived)
            if got == "costs too much":
                continue  # the API server refuses it, too: that the costs are the same is tested below
            if got == "not supported":
                unsupported.add(text)
            elif wanted != got:
                disagreements.append(f"{text}: {wanted}, not {got}")
    assert not disagreements, "\n".join(disagreements)
    assert FIRST or {*LACKING} <= unsupported, "what is supported now is to be compared: move it to ATOMS"
    assert len(unsupported - {*LACKING}) <= CASES * MOST_UNSUPPORTED, sorted(unsupported)


@pytest.mark.parametrize("author", [generate_expression, generate_costly_expression])
def test_the_api_server_estimates_the_same_costs(judge: Judge, author: Callable[[int], str]) -> None:
    """And what it accepts never exceeds the limit when it is evaluated."""
    disagreements: list[str] = []
    refused = 0
    for seed in range(FIRST, FIRST + CASES + len(ALONE)):
        text = author(seed)
        answer = judge.ask({"expression": text, "driver": DRIVER, "device": {"name": "d", **DEVICES[0]}})
        ours = estimate_cost(text)
        if "compileError" in answer or ours is None:
            continue
        if answer["mostCost"] != ours:
            disagreements.append(f"{text}: {answer['mostCost']}, not {ours}")
        refused += answer["mostCost"] > MAX_COST
        assert answer["mostCost"] > MAX_COST or "cost limit exceeded" not in answer.get("runtimeError", ""), text
    assert not disagreements, "\n".join(disagreements)
    assert author is generate_expression or refused > CASES * 0.1, "the cases have become too cheap"
