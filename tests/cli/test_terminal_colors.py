"""Which colors a command uses follows from the environment, by the same rules for every command."""

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.demo import _display
from kerf_dra.driver.cli.terminal_colors import choose_color
from kerf_dra.driver.cli.terminal_pictures import find_color_depth
from kerf_dra.driver.partitions.card_pictures.card_picture import units_of
from kerf_dra.driver.partitions.card_pictures.claim_colors import ColorDepth
from kerf_dra.driver.partitions.card_pictures.text_picture import DrawnCard

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

NONE, BASIC, INDEXED = ColorDepth.NONE, ColorDepth.BASIC, ColorDepth.INDEXED
STATE: Final = ("--from", str(Path(__file__).parents[2] / "docs/examples/full-card/cluster.json"))
COMMANDS: Final = {
    "why": ("why", "pod/trainer", *STATE),
    "frag": ("frag", *STATE),
    "check": ("check", "node"),
}


@pytest.mark.parametrize(
    ("environment", "color", "depth"),
    [
        ({}, None, BASIC),
        ({"TERM": "xterm"}, None, BASIC),
        ({"TERM": "xterm-256color"}, None, INDEXED),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, None, INDEXED),
        ({"TERM": "dumb"}, False, NONE),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, NONE),
        ({"TERM": "xterm", "NO_COLOR": ""}, None, BASIC),
        ({"FORCE_COLOR": "1"}, True, BASIC),
        ({"FORCE_COLOR": "1", "TERM": "xterm-256color"}, True, BASIC),
        ({"FORCE_COLOR": "2"}, True, INDEXED),
        ({"FORCE_COLOR": "3", "TERM": "dumb"}, True, INDEXED),
        ({"FORCE_COLOR": "true", "TERM": "xterm-256color"}, True, INDEXED),
        ({"FORCE_COLOR": "0", "TERM": "xterm"}, False, NONE),
        ({"FORCE_COLOR": "False"}, False, NONE),
        ({"FORCE_COLOR": "", "TERM": "xterm"}, None, BASIC),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, NONE),
    ],
    ids=str,
)
def test_the_environment_says_whether_there_are_colors(
    environment: Mapping[str, str], color: bool | None, depth: ColorDepth
) -> None:
    assert choose_color(environment) is color
    assert find_color_depth(environment) is depth


class Pipe(io.StringIO):
    """Output that is no terminal."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("environment", "stream", "has_colors"),
    [
        ({"TERM": "xterm"}, Pipe, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, Pipe, True),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, Terminal, False),
        ({"TERM": "dumb"}, Terminal, False),
    ],
    ids=["a pipe", "forced", "forbidden", "a dumb terminal"],
)
def test_every_command_heeds_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    environment: Mapping[str, str],
    stream: type[io.StringIO],
    has_colors: bool,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", shown := stream())
    monkeypatch.setattr(sys, "stderr", stream())
    main([*COMMANDS[command]])
    assert ("\x1b[" in shown.getvalue()) is has_colors
    assert len(shown.getvalue()) > 40


@pytest.mark.parametrize(("stream", "has_colors"), [(Terminal, True), (Pipe, False)])
def test_the_demo_draws_in_color_on_a_terminal_and_the_same_text_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], has_colors: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", shown := stream())
    display = _display("text", "full")
    display.cards([DrawnCard(names=("gpu-0",), units=units_of(["x", "y", ""]))], {"x": "trainer"})
    first = shown.getvalue()
    display.cards([DrawnCard(names=("gpu-0",), units=units_of(["y", "z", ""]))], {})
    assert ("\x1b[48;5;" in first) is has_colors
    assert click.unstyle(first) == "gpu-0  [ a b . ]  a = trainer  b = y\n"
    if has_colors:
        color_of_y = first.partition("b\x1b[0m")[0].rpartition("\x1b")[2]
        assert f"\x1b{color_of_y}a\x1b[0m" in shown.getvalue().removeprefix(first), "y is a here, and keeps its color"
