"""``docs/troubleshooting.md`` lists every condition, event, taint, readiness check and exit code, and messages that
exist; the pages of ``docs/reference`` that are written by hand are complete, too.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.cli import output
from kerf_dra.driver.kubeletplugin import instance
from kerf_dra.driver.runtime import lifecycle
from tests.structure.rules import check
from tools.sources import modules, text, tree

PAGE: Final = Path("docs/troubleshooting.md")
COMMANDS: Final = Path("docs/reference/command-line.md")
ENVIRONMENT: Final = Path("docs/reference/container-environment.md")
PROGRAMS: Final = tuple(
    f"driver/{package}"
    for package in ("controller", "families", "kube", "kubeletplugin", "mps", "partitions", "runtime")
)
"""The packages of the programs that run on a cluster, which write conditions, events, taints and logs."""
KUBERNETES: Final = frozenset({"FailedPrepareDynamicResources", "FailedKillPod", "FailedResourceClaimCreation"})
"""Events of Kubernetes, which only the diagnostics read."""
MADE_UP: Final = frozenset({"UnknownProfile", "UnknownFunction"})
"""Reasons that ``driver/controller/device_types.py`` composes of ``Unknown`` and the name of a field."""
OF_HOOKS: Final = frozenset({"NVIDIA_CTK_DEBUG"})
"""Variables of the hooks that a runtime runs beside a container."""
_WORD: Final = re.compile(r"[A-Z][A-Za-z]+")
_TAINT: Final = re.compile(r"…/([a-z-]+)")
_ROW: Final = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
_MIN_MESSAGE: Final = 12
"""Shorter strings than this would be found anywhere."""


def sources() -> Iterator[Path]:
    return (path for path in modules("driver") if path.as_posix().startswith(PROGRAMS))


def section(title: str) -> str:
    parts = re.split(r"^## ", text(PAGE), flags=re.MULTILINE)
    [found] = [part for part in parts if part.startswith(f"{title}\n")]
    return found


def render(node: ast.expr) -> str:
    """The text of a string, with ``…`` for what is filled in; empty for anything else."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(render(each) or "…" for each in values)
        case _:
            return ""


@cache
def strings() -> tuple[str, ...]:
    return tuple(
        rendered
        for path in sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant | ast.JoinedStr) and len(rendered := render(node)) >= _MIN_MESSAGE
    )


def words_of(path: Path, node: ast.expr | None) -> Iterator[str]:
    """The reasons that an expression may give."""
    match node:
        case ast.Constant(value=str(value)) if _WORD.fullmatch(value):
            yield value
        case ast.IfExp(body=one, orelse=other):
            yield from (*words_of(path, one), *words_of(path, other))
        case ast.Name(id=name):
            for each in tree(path).body:
                if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == name:
                    yield from words_of(path, each.value)


def reasons() -> set[str]:
    """Every reason of a condition or an event that a program writes."""
    found = set(MADE_UP)
    for path in sources():
        for node in ast.walk(tree(path)):
            match node:
                case ast.keyword(arg="reason", value=value):
                    found.update(words_of(path, value))
                case ast.Call(func=func, args=[_, second, *_]) if ast.unparse(func).endswith(
                    ("report_node", "_report", "iableError")
                ):
                    found.update(words_of(path, second))
                case ast.Call(func=ast.Name(id="report_device"), args=[_, _, third, *_]):
                    found.update(words_of(path, third))
                case ast.Assign(
                    targets=[ast.Tuple(elts=[ast.Name(id="reason"), *_])], value=ast.Tuple(elts=[value, *_])
                ):
                    found.update(words_of(path, value))
                case ast.Call(func=ast.Attribute(attr="_report_changes"), args=[_, ast.Dict(keys=[key])]):
                    found.update(words_of(path, key))
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id="found"), slice=key)]):
                    found.update(words_of(path, key))
                case ast.AnnAssign(target=ast.Name(id="reason"), value=value):
                    found.update(words_of(path, value))
                case ast.Assign(targets=[ast.Name(id="reason")], value=value):
                    found.update(words_of(path, value))
                case _:
                    pass
    return found


def taints() -> set[str]:
    """The keys of the taints that the plugin sets, without its driver's name."""
    # These are made by ``kerf_dra.api``, because explanations or the reclaimer know them, too.
    found = {"kept-out", "maintenance", "monitor", "repair", "unhealthy"}
    for path in modules("driver"):
        if path.is_relative_to("driver/kubeletplugin/inventory"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.JoinedStr) and (key := _TAINT.fullmatch(render(node))):
                    found.add(key[1])
    return found


def test_every_reason_of_conditions_and_events_is_listed() -> None:
    tables = [
        section(title)
        for title in (
            "Conditions of a ResourceClass",
            "Conditions of a FpgaImage or FpgaShell",
            "Conditions of a DiscoveryConfiguration or DiscoveredDevice",
            "Conditions of a claim's devices",
            "Events",
        )
    ]
    listed = {word for table in tables for row in rows(table) for word in _WORD.findall(spans(row))}
    conditions = {"Accepted", "Ready", "Matching", "DevicePlugin", "Placement", "TolerationsInClaims", "Simulated"}
    conditions |= {"Verified", "Fetched", "Refused", "Published"}
    check("not in the page", reasons() - listed)
    check("not in the code", listed - reasons() - KUBERNETES - conditions)


def rows(table: str) -> list[str]:
    """The rows, each up to the cell that says what it means."""
    return [" ".join(line.split("|")[:3]) for line in table.splitlines() if line.startswith("|")]


def spans(row: str) -> str:
    return " ".join(re.findall(r"`([^`]+)`", row))


def test_every_taint_is_listed() -> None:
    listed = {key.removeprefix("<driver>/") for key in _ROW.findall(section("Taints of devices"))}
    assert listed == taints()


def test_every_readiness_check_is_listed() -> None:
    listed = {key.removeprefix("FAMILY/") for key in _ROW.findall(section("Readiness checks"))}
    assert listed == {*instance.CHECKS, "start"}


def test_every_exit_code_is_listed() -> None:
    codes = {value for name, value in vars(output).items() if name.startswith("EXIT_")} | {0, 130}
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text(COMMANDS), re.MULTILINE)}
    assert listed == codes
    of_programs = {int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)}
    assert of_programs == {0, lifecycle.FAILED, instance.HANGING_EXIT_CODE}


@pytest.mark.parametrize("title", ["A program does not start", "A claim is not prepared"])
def test_messages_are_those_of_the_code(title: str) -> None:
    messages = _ROW.findall(section(title))
    assert len(messages) > 10
    check("no program says so", {message for message in messages if not is_said(message)})


def is_said(message: str) -> bool:
    return any(message in string for string in strings())


def test_a_message_that_nobody_says_is_found() -> None:
    assert not is_said("the card is in a bad mood: …")


def environment() -> set[str]:
    """The variables that backends set in containers, without the device's name."""
    variable = re.compile(r"((?:CUDA|KERF|NVIDIA|ZE)_[A-Z_]+?)(_…)?=.*", re.DOTALL)
    return _prefixes_of_devices() | {
        name[1]
        for path in modules("driver")
        if path.is_relative_to("driver/kubeletplugin/backends")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant | ast.JoinedStr) and (name := variable.fullmatch(render(node)))
    }


def _prefixes_of_devices() -> set[str]:
    """What backends have put before the name of a device (``name_variable``)."""
    return {
        render(node.args[0])
        for path in modules("driver")
        if path.is_relative_to("driver/kubeletplugin/backends")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "name_variable"
    } - {""}


def test_every_variable_of_containers_is_listed() -> None:
    listed = {name.partition("_<")[0] for name in _ROW.findall(text(ENVIRONMENT))}
    assert {name for name in listed if name.isupper()} == environment() - OF_HOOKS
