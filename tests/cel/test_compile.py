"""CEL over devices: what Kubernetes' environment gives, evaluated once for each distinct set of what is read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.driver.cel.compile import (
    DIFFERENT,
    UNSUPPORTED,
    ExpressionCompileError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
    compile_attribute,
    compile_selector,
)
from kerf_dra.driver.cel.environment import STORED, Dialect
from tests.allocation.builders import device

DRIVER = "gpu.example.com"
A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'
CARD = device(
    "card",
    attributes={
        "model": "h100",
        f"{DRIVER}/index": 3,
        "healthy": True,
        "firmware": Attribute(version="1.2.0"),
        "zones": Attribute(strings=("a", "b")),
        "firmwares": Attribute(versions=("1.0.0", "1.2.0")),
        "other.example.com/numa": 0,
    },
    capacity={"memory": "80Gi", "share": "1500m"},
)
TRUE = [
    "true",
    f'device.driver == "{DRIVER}"',
    f'{A}.model == "h100" && {A}["index"] > 2 && {A}.healthy',
    f'{A}.model in ["a100", "h100"]',
    f"{A}.index >= 2.5",
    f"{A}.index == 3.0",
    'device.attributes["other.example.com"].numa == 0',
    "!device.allowMultipleAllocations",
    # domains and names that are not there
    f'has({A}.model) && !has({A}.nothing) && "model" in {A} && !("nothing" in {A})',
    f'"{DRIVER}" in device.attributes && !("nowhere" in device.attributes)',
    '!has(device.attributes["nowhere"].model) && !("model" in device.attributes["nowhere"])',
    'device.attributes["nowhere"].size() == 0',
    'device.attributes[?"nowhere"].hasValue() && device.attributes["nowhere"].?model.orValue("x") == "x"',
    f'{A}.?model.orValue("none") == "h100"',
    'device.attributes[device.driver].model == "h100"',
    "device.attributes.exists(domain, domain == device.driver) && device.attributes.size() == 2",
    "has(device.driver) && has(device.capacity)",
    f'device.attributes["nowhere"].model == "x" || {A}.model == "h100"',
    f'cel.bind(gpu, {A}, gpu.model == "h100" && gpu.index == 3)',
    # quantities
    f'{C}.memory.compareTo(quantity("80Gi")) == 0 && {C}.memory == quantity("85899345920")',
    f'{C}.memory.isGreaterThan(quantity("79Gi")) && {C}["memory"].isLessThan(quantity("1Ti"))',
    f'{C}.share.add(quantity("500m")) == quantity("2") && {C}.share.sub(1) == quantity("500m")',
    f"!{C}.share.isInteger() && {C}.memory.asInteger() == 85899345920 && {C}.share.asApproximateFloat() == 1.5",
    'sign(quantity("-1")) == -1 && isQuantity("1Gi") && !isQuantity("1gi")',
    # versions
    f'{A}.firmware.isGreaterThan(semver("1.1.9")) && {A}.firmware == semver("1.2.0+build")',
    f"{A}.firmware.major() == 1 && {A}.firmware.minor() == 2 && {A}.firmware.patch() == 0",
    'semver("v1.2", true) == semver("1.2.0") && isSemver("1.0.0-rc.1") && !isSemver("1.0")',
    f'"1.2.0" != {A}.firmware && {A}.firmware != "1.2.0"',
    # lists
    f'{A}.zones.includes("a") && {A}.model.includes("h100") && {A}.index.includes(3) && !{A}.healthy.includes(1)',
    f'{A}.firmwares.includes(semver("1.0.0")) && {A}.firmwares.all(v, v.isLessThan(semver("2.0.0")))',
    f'"b" in {A}.zones && {A}.zones.exists(zone, zone == "a") && {A}.zones.size() == 2',
    "[1, 2].sum() == 3 && [2, 1].min() == 1 && [1, 2].max() == 2 && [1, 2].isSorted() && ![2, 1].isSorted()",
    "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(2) == -1",
    "[1, 2].exists(i, v, i == 1 && v == 2) && [1].transformList(i, v, v * 2) == [2] && lists.range(2) == [0, 1]",
    f'sets.contains(["h100", "a100"], [{A}.model]) && sets.equivalent([1, 1], [1])',
    # texts
    f'{A}.model.matches("^h[0-9]+$") && {A}.model.find("[0-9]+") == "100" && "a".find("b") == ""',
    '"a1b22".findAll("[a-z]([0-9]+)") == ["a1", "b22"] && "1 2 3".findAll("[0-9]", 2) == ["1", "2"]',
    r'"f(x)".find("\\(x\\)") == "(x)" && "a(".find("[(]") == "("',
    '"%d of %s".format([1, "two"]) == "1 of two" && "a-b".split("-") == ["a", "b"]',
    '"abcb".indexOf("b") == 1 && "abcb".indexOf("b", 2) == 3 && "abcb".lastIndexOf("b") == 3',
    '"abcb".lastIndexOf("b", 2) == 1 && "a".indexOf("") == 0 && "a".indexOf("a", 5) == -1',
    '"abc".substring(1) == "bc" && "abc".substring(0, 3) == "abc"',
    'device.attributes["gpu.example.com"].model == "h100" // a comment with device.attributes["x"].y in it',
]


@pytest.mark.parametrize("expression", TRUE)
def test_an_expression_that_holds_matches(expression: str) -> None:
    assert compile_selector(expression).matches(DRIVER, CARD)


FAILING = {
    f"{A}.nothing == 1": "nothing",
    f'device.attributes["nowhere"].model == "x" && {A}.model == "h100"': "model",
    f"{A}.model": "must be true or false",
    f"{A}.model > 5": "overload",
    f'{A}.firmware == "1.2.0"': "semver(...)",
    f"{A}.firmware.compareTo({C}.memory) == 0": "overload",
    f"{C}.share.asInteger() == 1": "integer",
    'quantity("many") == quantity("1")': "quantity",
    'semver("1.0") == semver("1.0.0")': "semantic version",
    "9223372036854775807 + dyn(1) > 0": "overflow",
    f'"x".matches({A}.model + "[")': "regular expression",
    '"abc".substring(2, 1) == ""': "range",
    "[].min() == 1": "empty",
    "lists.range(49).includes(60)": "48",
    "[1,2,3,4,5,6,7,8,9,10].all(a, lists.range(40).all(b, lists.range(40).all(c, c < 50)))": "budget",
}


@pytest.mark.parametrize(("expression", "reason"), FAILING.items())
def test_a_run_time_error_is_an_error_and_not_false(expression: str, reason: str) -> None:
    with pytest.raises(ExpressionRuntimeError, match=reason.replace("(", r"\(").replace(")", r"\)")) as failure:
        compile_selector(expression).matches(DRIVER, CARD)
    assert failure.value.expression == expression


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 ==",
        "device.driver == 5",
        "device.model",
        "1 && true",
        "1 == 1.0",
        '"text"',
        "device.attributes",
        f'{C}.memory == "80Gi"',
        f"{C}.memory.compareTo(1) == 0",
        'quantity("1").compareTo(semver("1.0.0")) == 0',
        "math.greatest(1, 2) == 2",
        '"abc".reverse() == "cba"',
        "nonsense(1)",
        '__attributes["x"].y == 1',
        'kubernetes.Quantity{} == quantity("0")',
        'quantity("1").value == "1"',
    ],
)
def test_what_kubernetes_refuses_does_not_compile(expression: str) -> None:
    with pytest.raises(ExpressionCompileError):
        compile_selector(expression)


@pytest.mark.parametrize(
    ("expression", "feature"),
    [
        ('ip("10.0.0.1").family() == 4', "ip"),
        ('isIP("10.0.0.1")', "isIP"),
        ('cidr("10.0.0.0/8").containsIP("10.0.0.1")', "cidr"),
        ('isCIDR("10.0.0.0/8")', "isCIDR"),
        ('url("https://example.com").getHost() == "example.com"', "url"),
        ('isURL("https://example.com")', "isURL"),
        ('!format.dns1123Label().validate("a").hasValue()', "format"),
        ("[3].exists(z, cel.bind(x, z, [1].exists(z, z + 2 == x)))", "bind"),
        ('{"a": 1}.transformMap(k, v, v + 1)["a"] == 2', "transformMap"),
        ('{"a": 1}.transformMapEntry(k, v, {v: k})[1] == "a"', "transformMapEntry"),
        ("device == device", "device"),
        ("1 < 1.5", "_<_"),
        ("1 <= 1.5", "_<=_"),
        ("1.5 > 1", "_>_"),
        ("1u >= 1", "_>=_"),
        ("(" * 33 + "true" + ")" * 33, "()"),
        ("[[1]]" + ".map(a, a + a)" * 25 + ".size() > 0", "work"),
    ],
)
def test_what_this_engine_lacks_is_refused_by_name(expression: str, feature: str) -> None:
    with pytest.raises(UnsupportedExpressionError) as refusal:
        compile_selector(expression)
    assert refusal.value.feature == UNSUPPORTED[feature]
    assert UNSUPPORTED[feature] in str(refusal.value)


@pytest.mark.parametrize(
    "expression",
    [
        "+".join(["1"] * 32) + " > 0",
        "+".join(["1"] * 250) + " > 0",
        "true ? true : " * 32 + "true",
        "true ? true : " * 33 + "true",
        "(" * 33 + "true" + ")" * 33,
        "(" * 32 + "true" + " || false)" * 32,
    ],
    ids=["32 summands", "250 summands", "32 conditionals", "33 conditionals", "33 brackets", "32 brackets with or"],
)
def test_what_is_nested_deeper_than_the_engine_reads_is_not_called_wrong(expression: str) -> None:
    """The engine's parser takes 32 levels and cel-go's 250: `kerf why` said that such a selector does not compile."""
    with pytest.raises(UnsupportedExpressionError, match="32 levels or more"):
        compile_selector(expression)


def test_a_text_that_says_what_the_parser_says_of_levels_is_no_such_expression() -> None:
    with pytest.raises(ExpressionCompileError):
        compile_selector('nosuch == "Expression recursion limit exceeded. limit: 32"')


def test_every_entry_of_the_table_of_what_is_missing_is_real() -> None:
    """The parametrized test above has one expression for each entry; a new engine may make some of them true."""
    mark = next(each for each in test_what_this_engine_lacks_is_refused_by_name.pytestmark)  # type: ignore[attr-defined]
    assert {feature for _, feature in mark.args[1]} == set(UNSUPPORTED)
    assert len(DIFFERENT) == len(set(DIFFERENT))


OLD = Dialect(consumable_capacity=False, list_type_attributes=False)


@pytest.mark.parametrize("expression", ["!device.allowMultipleAllocations", f'{A}.model.includes("h100")'])
def test_a_new_expression_may_use_only_what_the_gates_allow(expression: str) -> None:
    assert compile_selector(expression, STORED).matches(DRIVER, CARD)
    with pytest.raises(ExpressionCompileError):
        compile_selector(expression, OLD)


@pytest.mark.parametrize(
    ("expression", "attribute"),
    [
        ('"near"', Attribute(string="near")),
        (f"{A}.index + 1", Attribute(int_value=4)),
        (f"{A}.index > 1", Attribute(bool_value=True)),
        (f"{A}.firmware", Attribute(version="1.2.0")),
        ('semver("1.0.0")', Attribute(version="1.0.0")),
        (f"{A}.zones", Attribute(strings=("a", "b"))),
        (f"[{A}.index, dyn(5)]", Attribute(ints=(3, 5))),
        ("[true]", Attribute(bools=(True,))),
        (f"{A}.firmwares", Attribute(versions=("1.0.0", "1.2.0"))),
        ("[dyn(1)].filter(x, x > 1)", Attribute(strings=())),
    ],
)
def test_an_attribute_is_derived_with_its_type(expression: str, attribute: Attribute) -> None:
    assert compile_attribute(expression).derive(DRIVER, CARD) == attribute


@pytest.mark.parametrize(
    "expression", [f"[dyn({A}.index), dyn({A}.model)]", f"{A}.nothing", "dyn({1: 2})", "dyn([[1]])"]
)
def test_deriving_what_is_no_attribute_fails(expression: str) -> None:
    with pytest.raises(ExpressionRuntimeError):
        compile_attribute(expression).derive(DRIVER, CARD)


def test_lists_are_derived_only_where_lists_are_on() -> None:
    compile_attribute("[1, 2]", STORED)
    with pytest.raises(ExpressionCompileError):
        compile_attribute("[1, 2]", OLD)
    with pytest.raises(ExpressionCompileError):
        compile_attribute("device.attributes", STORED)


def test_the_same_expression_is_compiled_once() -> None:
    assert compile_selector(f'{A}.model == "h100"') is compile_selector(f'{A}.model == "h100"')


values = st.none() | st.sampled_from([0, 1, True, "x", "y"])
small_devices = st.builds(
    lambda own, qualified, foreign, size, shareable: Device(
        name="d",
        attributes={
            name: Attribute.of(value)
            for name, value in {"a": own, f"{DRIVER}/b": qualified, "far.example.com/a": foreign}.items()
            if value is not None
        },
        capacity=device("d", capacity={"memory": size}).capacity if size else {},
        allow_multiple_allocations=shareable,
    ),
    values,
    values,
    values,
    st.sampled_from(["", "1Gi", "2Gi"]),
    st.booleans(),
)


@given(
    st.sampled_from(
        [
            f"{A}.a == 1",
            f'{A}["b"] == "x"',
            f'"a" in {A} && {A}.a != "x"',
            f'has({A}.b) ? {A}.b == "y" : false',
            f'cel.bind(own, {A}, has(own.a) && own.a == "x")',
            'device.attributes["far.example.com"].a == "x" || device.allowMultipleAllocations',
            f'{C}.memory.isGreaterThan(quantity("1Gi")) && device.driver.startsWith("gpu")',
            f'{A}.exists(name, name == "b")',
        ]
    ),
    st.lists(small_devices, min_size=1, max_size=6),
)
def test_a_result_depends_on_nothing_but_what_is_read(expression: str, devices: list[Device]) -> None:
    """The second form reads everything, so nothing of it can have been left out or taken from another device."""
    narrow = compile_selector(expression)
    wide = compile_selector(f"({expression}) && device.attributes.size() >= 0")
    for each in devices:
        answers: list[bool | str] = []
        for selector in (narrow, wide):
            try:
                answers.append(selector.matches(DRIVER, each))
            except ExpressionRuntimeError as error:
                answers.append(error.reason)
        assert answers[0] == answers[1]


def test_who_evaluates_nothing_does_not_load_the_engine() -> None:
    script = "import sys, kerf_dra.driver.cel.compile; sys.exit('cel_expr_python' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ('[1, "a"].size() == 2', "expected type int but found string"),
        ('{"a": 1, "b": true}.size() == 2', "expected type int but found bool"),
        (f"[{A}.index, 5].size() == 2", "expected type dyn but found int"),
        ("[[true], true].size() == 2", "expected type list but found bool"),
        ('int("x") == 5', 'int("x") is no int'),
        ('duration("x") == duration("1s")', 'duration("x") is no duration'),
        ("uint(-1) == 1u", "uint(-1) is no uint"),
        ('device.driver.matches("[")', '"[" is no regular expression'),
        ('matches(device.driver, "[")', '"[" is no regular expression'),
        ('device.driver.find("(") == ""', '"(" is no regular expression'),
    ],
)
def test_literals_that_the_api_server_refuses_are_refused(expression: str, reason: str) -> None:
    with pytest.raises(ExpressionCompileError, match=re.escape(reason)):
        compile_selector(expression)


@pytest.mark.parametrize(
    "expression",
    [
        '"%d-%s".format([1, "a"]) == "1-a"',
        '{"a": true ? 1 : 2, "b": 3}.size() == 2',
        '[device.attributes["d"].?a.hasValue(), true].size() == 2',
        "[optional.of(1), optional.none()].size() == 2",
        "[[], [1]].size() == 2",
        "[1, 2].map(x, [x, 1]).size() == 2",
        'device.driver.matches(".")',
        'string(1) == "1"',
    ],
)
def test_literals_that_it_takes_are_taken(expression: str) -> None:
    assert compile_selector(expression).matches("d", device("d"))


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("[true, true].exists(z, z) == cel.bind(y, false, y && true)", False),
        ("[true, true].exists(z, z) == cel.bind(y, [1].all(z, false), y && [true].exists(z, z))", False),
        ("cel.bind(x, 1 / 0 == 1, x || true)", True),
        ("cel.bind(x, 2, [1, 2].exists(x, x == 1) && x == 2)", True),
        ("cel.bind(x, 1, cel.bind(x, x + 1, x == 2))", True),
        ("[3].exists(z, cel.bind(x, z, [1].exists(y, y + 2 == x)))", True),
        ('cel.bind(all, device.attributes, has(all["nope"].x))', False),
        ('device.attributes["no" + "pe"].size() == 0', True),
    ],
)
def test_a_name_stands_for_its_value(expression: str, matches: bool) -> None:
    assert compile_selector(expression).matches("d", device("d", attributes={"a": 1})) is matches


def test_what_is_missing_or_different_stands_in_the_documentation() -> None:
    document = (Path(__file__).parents[2] / "docs" / "cel.md").read_text(encoding="utf-8")
    missing = [text for text in (*UNSUPPORTED.values(), *DIFFERENT) if f"- {text}\n" not in document]
    assert not missing
