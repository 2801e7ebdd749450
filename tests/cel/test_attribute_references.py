"""The attributes that an expression reads, found from its tokens."""

import pytest

from kerf_dra.driver.cel.attribute_references import Read, analyze_expression

D = "gpu.example.com"


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ('device.attributes["gpu.example.com"].model == "x"', {("attributes", D, "model")}),
        ("device.attributes['gpu.example.com']['model'] != \"x\"", {("attributes", D, "model")}),
        ("device.attributes.local.model", {("attributes", "local", "model")}),
        ('has(device.capacity["gpu.example.com"].memory)', {("capacity", D, "memory")}),
        ('"model" in device.attributes["gpu.example.com"]', {("attributes", D, "model")}),
        ('true && "model" in device.attributes["gpu.example.com"] || false', {("attributes", D, "model")}),
        ('device . attributes [ "gpu.example.com" ] . model // and so on', {("attributes", D, "model")}),
        ('device.attributes["gpu.example.com"].zones.exists(z, z == "a")', {("attributes", D, "zones")}),
        ('"a" + "b" in device.attributes["gpu.example.com"]', {("attributes", D, None)}),
        ('device.attributes["gpu.example.com"].exists(k, k == "a")', {("attributes", D, None)}),
        ('cel.bind(a, device.attributes["gpu.example.com"], a.model == "x")', {("attributes", D, "model")}),
        ('device.attributes["gpu.example.com"].?model.orValue("x")', {("attributes", D, None)}),
        ("1 == 1 || 'device.attributes[x].y' == ''", set()),
    ],
)
def test_reads_are_as_narrow_as_the_spelling_shows(expression: str, reads: set[Read]) -> None:
    reading = analyze_expression(expression)
    assert reading.is_exact
    assert set(reading.reads) == reads


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes[device.driver].model",
        'device.attributes["a" + "b"].model',
        r'device.attributes["a\u0062"].model',
        '"gpu.example.com" in device.attributes',
        "device.attributes.exists(d, d == 'x')",
        "device.capacity.size() > 0",
        "device == device",
        "cel.bind(all, device.attributes, all.size() > 0)",
    ],
)
def test_what_is_not_understood_in_full_may_read_anything(expression: str) -> None:
    reading = analyze_expression(expression)
    assert not reading.is_exact
    assert reading.reads_driver
    assert reading.reads_sharing


@pytest.mark.parametrize("expression", ["", "(", '"open', "device.", "1 +* 2", "🦊 == '''"])
def test_nonsense_is_left_to_the_compiler(expression: str) -> None:
    assert analyze_expression(expression).expression == expression


def test_positions_in_messages_stay_close_to_what_was_written() -> None:
    written = 'device.driver == "x"  &&\n  device.attributes["x"].y > 1 // why'
    assert analyze_expression(written).expression == "device.driver == \"x\"  &&\n  __attributes['x'].y > 1 // why"
