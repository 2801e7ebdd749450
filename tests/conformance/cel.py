"""``python -m tests.conformance cel FILE.jsonl``: device expressions against recorded answers of Kubernetes' CEL.

A selector's case has ``expression``, ``driver``, ``attributes`` and ``capacity``, and in ``expect`` whether it
compiles, whether it fails, and the result. A derived attribute's case has ``kind`` (``compile`` or ``evaluate``) and
``device``, and in ``expect`` the attribute. Judged are whether it compiles, whether it fails, and the value; not texts.
An estimate of its cost is printed where it differs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.api.wire import dec_hook
from kerf_dra.driver.cel.compile import (
    ExpressionCompileError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
    compile_attribute,
    compile_selector,
)
from kerf_dra.driver.cel.cost import estimate_cost
from kerf_dra.driver.cel.environment import STORED, Dialect

INTENDED: Final[Mapping[str, str]] = {}
"""Cases in which we mean to differ: name, and why. They count as passed when we differ, as failed when we do not."""


def run(path: Path, arguments: Sequence[str]) -> tuple[int, int]:
    """Judge every case of ``path``; prints each disagreement. Returns how many passed and how many failed."""
    passed = failed = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        _tell_cost(case)
        disagreement = disagreement_with(case)
        if (disagreement is None) != (case["name"] in INTENDED):
            passed += 1
            continue
        failed += 1
        print(f"{case['name']}: {disagreement}: {case['expression']}")
    return passed, failed


def disagreement_with(case: JsonObject) -> str | None:
    """How our answer differs from the recorded one; None: it does not."""
    wanted, got = _wanted(case), _answer(case)
    return None if wanted == got else f"{wanted}, not {got}"


def _tell_cost(case: JsonObject) -> None:
    wanted, got = case["expect"].get("cost"), estimate_cost(case["expression"], _dialect(case))
    has_cost = case["expect"].get("compile_error") is None and None not in (wanted, got)
    if has_cost and wanted != got:
        print(f"{case['name']}: costs {wanted}, not {got}: {case['expression']}")


def _wanted(case: JsonObject) -> object:
    expect = case["expect"]
    if expect.get("compile_error") is not None:
        return "does not compile"
    if expect.get("match_error") is not None or expect.get("eval_error") is not None:
        return "fails"
    if case.get("kind") == "compile":
        return "compiles"
    return expect["match"] if "match" in expect else _convert(expect["attribute"], Attribute)


def _answer(case: JsonObject) -> object:
    is_derived = "kind" in case
    given = case.get("device", {}) if is_derived else case
    driver = given.get("driver", "")
    fields = {name: given.get(name) for name in ("attributes", "capacity", "allowMultipleAllocations")}
    device = _convert(
        {"name": "device", **{name: value for name, value in fields.items() if value is not None}}, Device
    )
    try:
        if is_derived:
            attribute = compile_attribute(case["expression"], _dialect(case))
            return "compiles" if case["kind"] == "compile" else attribute.derive(driver, device)
        return compile_selector(case["expression"], _dialect(case)).matches(driver, device)
    except ExpressionCompileError:
        return "does not compile"
    except ExpressionRuntimeError:
        return "fails"
    except UnsupportedExpressionError as error:
        return f"is not supported ({error.feature})"


def _dialect(case: JsonObject) -> Dialect:
    """Stored expressions are compiled with every part of the environment; new ones with what the gates allow."""
    if case.get("envType") != "NewExpressions":
        return STORED
    features = case.get("features") or {"consumableCapacity": True, **case}
    return Dialect(
        consumable_capacity=features["consumableCapacity"], list_type_attributes=features["listTypeAttributes"]
    )


def _convert(value: object, type_: Any) -> Any:
    return msgspec.convert(value, type_, dec_hook=dec_hook)
