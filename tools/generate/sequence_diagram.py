"""A sequence diagram: programs side by side, each with a line downwards, and what they do and call in order of time.

This is UML's diagram of interactions with its signs for calls and answers, without its frames.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from tools.generate.diagram import LETTER, LINE, Box, build_diagram, draw_arrow, draw_text

_BOX: Final = 34.0
"""The height of a program's box."""
_STEP: Final = 12.0
"""Pixels between steps, beside the lines of their texts."""
_EDGE: Final = 6.0
"""Pixels around the text of what a program does by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A program, or what it works on."""

    name: str
    kind: str
    """A kind of ``Box``."""
    middle: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a program does by itself, or a call or an answer from one program to another."""

    text: str
    source: int
    """The number of the lane."""
    target: int | None = None
    """The number of the lane that an arrow leads to; None: the program does it by itself."""
    note: str = ""
    """What the receiver of a call does, right of its line."""
    is_name: bool = False
    """Whether the text is a name of the code."""
    phase: str = ""
    """What begins with this step, left of all lines; empty: what was there goes on."""
    heading: str = ""
    """A name of the code above this step and those below it."""


def draw_sequence(
    size: tuple[float, float], title: str, lanes: Sequence[Lane], steps: Sequence[Step], *, note_letters: int = 0
) -> str:
    """Return the diagram as SVG, ``size`` its width and the left end of the phases. It is as high as its steps need."""
    width, left = size
    elements: list[str] = []
    top = _BOX + 4 + _STEP
    for step in steps:
        drawn = [*_draw_step(lanes, step, top, left, note_letters)]
        elements += drawn
        top += _measure(lanes, step, note_letters)
    lines = [f'<path class="life" d="M{lane.middle:g} {_BOX + 4:g}L{lane.middle:g} {top:g}"/>' for lane in lanes]
    boxes = [
        element
        for lane in lanes
        for element in Box(
            left=lane.middle - lane.width / 2, top=4, width=lane.width, height=_BOX, kind=lane.kind, name=lane.name
        ).draw()
    ]
    described = ". ".join(_describe(lanes, step) for step in steps)
    return build_diagram((width, top + 4), title, f"{described}.", [*lines, *boxes, *elements])


def _measure(lanes: Sequence[Lane], step: Step, note_letters: int) -> float:
    """Return the height of a step with the space below it."""
    above = LINE + _STEP if step.heading else 0.0
    own = len(_wrap_own(lanes[step.source], step.text)) * LINE + _EDGE if step.target is None else LINE
    return above + max(own, (len(_wrap_note(step, note_letters)) - 0.5) * LINE) + _STEP


def _wrap_own(lane: Lane, text: str) -> list[str]:
    return wrap(text, int(lane.width / LETTER), break_long_words=False)


def _wrap_note(step: Step, note_letters: int) -> list[str]:
    return wrap(step.note, note_letters) if step.note else []


def _draw_step(lanes: Sequence[Lane], step: Step, top: float, left: float, note_letters: int) -> Iterator[str]:
    source = lanes[step.source]
    if step.phase:
        yield f'<path class="life" d="M{left:g} {top - 6:g}H{lanes[-1].middle + lanes[-1].width / 2:g}"/>'
        yield draw_text(left, top + 8, step.phase, "name")
    if step.heading:
        middle = (lanes[0].middle + lanes[-1].middle) / 2
        yield draw_text(middle, top + LINE - 4, step.heading, "code name over", anchor="middle")
        top += LINE + _STEP
    if step.target is None:
        lines = _wrap_own(source, step.text)
        box = Box(
            left=source.middle - source.width / 2,
            top=top,
            width=source.width,
            height=len(lines) * LINE + _EDGE,
            kind=source.kind,
            below=lines,
        )
        yield from box.draw()
        return
    target = lanes[step.target]
    level = top + LINE
    yield from draw_arrow((source.middle, level), (target.middle, level), step.text, "code" if step.is_name else "")
    for number, line in enumerate(_wrap_note(step, note_letters)):
        yield draw_text(max(source.middle, target.middle) + 10, level + 4 + number * LINE, line, "faint")


def _describe(lanes: Sequence[Lane], step: Step) -> str:
    phase = "".join(f"{each}: " for each in (step.phase, step.heading) if each)
    receiver = f" to {lanes[step.target].name}" if step.target is not None else ""
    note = f" ({step.note})" if step.note else ""
    return f"{phase}{lanes[step.source].name}{receiver}: {step.text}{note}"
