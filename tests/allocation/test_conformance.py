"""The comparisons with recorded answers: they accept correct answers and report wrong ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import allocator, cel

SLICE = {
    "metadata": {"name": "slice"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": [{"name": "a", "capacity": {"memory": {"value": "4Gi"}}, "allowMultipleAllocations": True}],
    },
}
HERE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}
GIVEN = {
    "request": "r",
    "driver": "gpu.example.com",
    "pool": "pool",
    "device": "a",
    "shareID": "8d7f7c1e-0000-0000-0000-000000000000",
    "consumedCapacity": {"memory": "2048Mi"},
}
CASE: dict[str, Any] = {
    "name": "share",
    "features": {"ConsumableCapacity": True},
    "classes": [{"metadata": {"name": "any"}, "spec": {}}],
    "slices": [SLICE],
    "node": {"metadata": {"name": "node-1"}},
    "claims": [
        {
            "metadata": {"name": "claim"},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "r",
                            "exactly": {"deviceClassName": "any", "capacity": {"requests": {"memory": "2Gi"}}},
                        }
                    ]
                }
            },
        }
    ],
    "allocated": {"devices": [], "sharedDevices": [], "consumedCapacity": []},
    "expect": {"results": [{"devices": {"results": [GIVEN]}, "nodeSelector": HERE}], "error": None, "errorKind": None},
}
NO = {"results": None, "error": None, "errorKind": None}
HELD = {
    "devices": [{"driver": "gpu.example.com", "pool": "pool", "device": "a"}],
    "sharedDevices": [],
    "consumedCapacity": [],
}
SHARED = {
    "devices": [],
    "sharedDevices": [{"driver": "gpu.example.com", "pool": "pool", "device": "a", "shareID": "x"}],
    "consumedCapacity": [{"driver": "gpu.example.com", "pool": "pool", "device": "a", "capacity": {"memory": "3Gi"}}],
}


def judged(path: Path, judge: Any, *cases: dict[str, Any]) -> tuple[int, int]:
    path.write_text("\n".join(json.dumps(case) for case in cases))
    result: tuple[int, int] = judge.run(path, [])
    return result


@pytest.mark.parametrize(
    "case",
    [
        CASE,
        {**CASE, "allocated": HELD, "expect": NO},
        {**CASE, "allocated": SHARED, "expect": NO},
        {**CASE, "classes": [], "expect": {"results": None, "error": "no class", "errorKind": "fatal"}},
        {**{key: value for key, value in CASE.items() if key != "expect"}, "fits": True},
    ],
)
def test_an_answer_that_agrees_passes(case: dict[str, Any], tmp_path: Path) -> None:
    assert judged(tmp_path / "cases", allocator, case) == (1, 0)


@pytest.mark.parametrize(
    "case",
    [
        {**CASE, "allocated": HELD},
        {**CASE, "expect": NO},
        {**CASE, "expect": {"results": None, "error": "boom", "errorKind": "node"}},
        {**CASE, "expect": {"results": [{"devices": {"results": [{**GIVEN, "device": "b"}]}}], "error": None}},
        {**CASE, "expect": {"results": [{"devices": {"results": [GIVEN]}}], "error": None}},
        {**{key: value for key, value in CASE.items() if key != "expect"}, "fits": False},
    ],
)
def test_an_answer_that_differs_fails_and_is_shown(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(tmp_path / "cases", allocator, CASE, case) == (1, 1)
    assert capsys.readouterr().out.startswith("share: ")


SELECTOR: dict[str, Any] = {
    "name": "model",
    "expression": 'device.attributes["gpu.example.com"].model == "h100"',
    "driver": "gpu.example.com",
    "attributes": {"model": {"string": "h100"}},
    "capacity": None,
    "allowMultipleAllocations": None,
    "features": None,
    "envType": None,
    "expect": {"compile_error": None, "match_error": None, "match": True},
}
DERIVED: dict[str, Any] = {
    "name": "derived",
    "kind": "evaluate",
    "expression": '["a"]',
    "envType": "NewExpressions",
    "listTypeAttributes": True,
    "device": {"driver": "gpu.example.com"},
    "expect": {"attribute": {"strings": ["a"]}, "eval_error": None},
}


@pytest.mark.parametrize(
    ("case", "passes"),
    [
        (SELECTOR, True),
        ({**SELECTOR, "expression": "false"}, False),
        ({**SELECTOR, "attributes": {}}, False),
        ({**SELECTOR, "expression": "1 +"}, False),
        ({**SELECTOR, "expression": 'isIP("::1")'}, False),
        ({**SELECTOR, "expression": "1 +", "expect": {"compile_error": "syntax"}}, True),
        ({**SELECTOR, "attributes": {}, "expect": {"match_error": "no such key"}}, True),
        (DERIVED, True),
        ({**DERIVED, "listTypeAttributes": False}, False),
        ({**DERIVED, "kind": "compile", "expect": {"compile_error": None}}, True),
    ],
)
def test_an_expression_is_judged_by_whether_it_compiles_fails_and_holds(
    case: dict[str, Any], passes: bool, tmp_path: Path
) -> None:
    assert judged(tmp_path / "cases", cel, case) == ((1, 0) if passes else (0, 1))
