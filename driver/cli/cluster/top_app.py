"""The live terminal of ``kerf top``: an application of Textual over the readings of a cluster.

Panes hold lines of text, and a pane rewrites only those that differ from what it shows. Cards come drawn, as text with
escape sequences; nothing here draws or colors them, and no text is read as Textual's markup.

When a reading fails, the last view stays, with the time since which it is not current, and readings go on.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final

import anyio
from anyio import to_thread
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.cli.cluster.top_state import (
    ApiServerSource,
    ClusterSource,
    FileSource,
    Reading,
    add_reports,
    build_reading,
    choose_pause,
    draw_nodes,
    find_unexplained,
)
from kerf_dra.driver.cli.cluster.top_text import (
    describe_counts,
    describe_forbidden,
    describe_free,
    describe_row,
    format_rows,
    format_time,
)
from kerf_dra.driver.cli.cluster.why import render_answer
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.explain.report import Subject
from kerf_dra.driver.diagnostics.overview.claim_rows import SORT_KEYS, ClaimRow, explain_row, matches, sort_rows
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors

_DETAIL: Final = 6
_NARROW_DETAIL: Final = 8
"""Lines about the chosen claim, which have its cause and what to do in most reports: of 80 columns, and of fewer."""
_EXPLAIN_S: Final = 2.0
"""Seconds in which reports are made again after each reading: hundreds on a few nodes, a few on hundreds."""
_WIDE: Final = 60
"""Columns from which the reason of a claim takes few lines."""
_NARROWEST: Final = 40
"""Columns for which text is wrapped, however narrow the terminal is."""
_WIDEST: Final = 100
"""Columns of sentences, at most: longer lines are hard to read."""


class LinePane(ScrollView, can_focus=True):
    """Lines of text, of which only those are drawn again that change."""

    def __init__(self, *, id: str, is_cut: bool = True) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.lines: tuple[str, ...] = ()
        self._is_cut = is_cut
        """Whether of longer lines only as much is to be seen as there is room for."""

    def show(self, lines: Sequence[str]) -> None:
        """Show ``lines``, which have no control characters but the escape sequences of colors."""
        before, self.lines = self.lines, tuple(lines)
        size = Size(0 if self._is_cut else max(map(_measure, self.lines), default=0), len(self.lines))
        if size != self.virtual_size:
            self.virtual_size = size
        for y, (old, new) in enumerate(zip_longest(before, self.lines)):
            if old != new:
                self.refresh_shown_line(y)

    def refresh_shown_line(self, y: int) -> None:
        """Draw a line again if it is on the screen."""
        if 0 <= y - self.scroll_offset.y < self.size.height:
            self.refresh_line(y)

    def render_line(self, y: int) -> Strip:
        x, top = self.scroll_offset
        line = self.lines[y + top] if y + top < len(self.lines) else ""
        return self.style_line(_to_strip(line), y + top).crop_extend(x, x + self.size.width, self.rich_style)

    def style_line(self, strip: Strip, y: int) -> Strip:  # noqa: ARG002  (for what has a cursor)
        return strip


class ClaimPane(LinePane):
    """A line for each claim, of which one is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("j", "move(1)", show=False),
        Binding("pageup", "move_page(-1)", show=False),
        Binding("pagedown", "move_page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "ask", "why"),
    ]

    class Moved(Message):
        """Another row is chosen."""

    class Asked(Message):
        """Why the chosen row waits is asked."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.rows: tuple[ClaimRow, ...] = ()
        self.cursor = 0

    @property
    def chosen(self) -> ClaimRow | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def show_rows(self, rows: Sequence[ClaimRow], lines: Sequence[str]) -> None:
        """Show ``rows`` as ``lines``; the row that is chosen stays so wherever it is now."""
        subject = self.chosen.subject if self.chosen else None
        self.rows = tuple(rows)
        places = {row.subject: place for place, row in enumerate(self.rows)}
        before = self.cursor
        self.cursor = places.get(subject, min(self.cursor, max(0, len(rows) - 1))) if subject else 0
        self.show(lines)
        self._redraw_cursor(before)

    def action_move(self, by: int) -> None:
        before = self.cursor
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + by))
        self._redraw_cursor(before)
        top, height = self.scroll_offset.y, self.size.height
        if not top <= self.cursor < top + height:
            target = self.cursor if self.cursor < top else self.cursor - height + 1
            self.scroll_to(y=target, animate=False)
        self.post_message(self.Moved())

    def action_move_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def action_ask(self) -> None:
        self.post_message(self.Asked())

    def on_click(self, event: events.Click) -> None:
        self.action_move(event.y + self.scroll_offset.y - self.cursor)

    def on_focus(self) -> None:
        self.refresh_shown_line(self.cursor)

    def on_blur(self) -> None:
        self.refresh_shown_line(self.cursor)

    def _redraw_cursor(self, before: int) -> None:
        if before != self.cursor:
            self.refresh_shown_line(before)
            self.refresh_shown_line(self.cursor)

    def style_line(self, strip: Strip, y: int) -> Strip:
        if y != self.cursor or not self.rows:
            return strip
        return strip.extend_cell_length(self.size.width).apply_style(
            Style(reverse=self.has_focus, underline=not self.has_focus)
        )


class ReportScreen(ModalScreen[None]):
    """What ``kerf why`` says of one claim."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "close", "back")]
    DEFAULT_CSS = "ReportScreen { background: $background; }"

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield LinePane(id="report", is_cut=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(LinePane).show(self._lines)

    def action_close(self) -> None:
        self.dismiss()


class TopApp(App[None]):
    """Shows the readings of a cluster until it is closed."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    LinePane { scrollbar-size: 1 1; }
    Screen { overflow: hidden; }
    #cards { height: auto; max-height: 45%; overflow-x: hidden; }
    #claims { height: 1fr; min-height: 3; overflow-x: hidden; }
    #header, #title { text-style: bold; }
    #detail { height: auto; max-height: 35%; border-top: solid $primary; }
    #filter { display: none; border: none; height: 1; padding: 0; }
    #filter.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("space", "read", "read now", show=False),
        Binding("escape", "clear", show=False),
        Binding("q,ctrl+c", "quit", "quit"),
    ]

    def __init__(self, reading: Reading, source: ClusterSource) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.reading = reading
        self.failure = ""
        """Why there is no newer reading; empty: the last attempt gave this one."""
        self._source = source
        self.fault: BaseExceptionGroup | None = None
        """What has ended the application, if it was no key."""
        self._wanted = anyio.Event()
        self._renewed = anyio.Event()
        self._sort = next(iter(SORT_KEYS))
        self._is_reverse = False

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield LinePane(id="cards")
        yield Static(id="header", markup=False)
        yield ClaimPane(id="claims")
        with Vertical(id="detail"):
            yield Static(id="about", markup=False)
        yield Input(id="filter", placeholder="part of a name, node, state or reason; Esc ends it", compact=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(ClaimPane).focus()
        self.run_worker(self._run())

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_all)

    # readings

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow)
                tasks.start_soon(self._explain)
        except BaseExceptionGroup as group:  # the terminal is not the place to report a fault
            self.fault = group
            self.exit()

    async def _follow(self) -> None:
        """Read the cluster again and again."""
        took_s = 0.0
        while True:
            with anyio.move_on_after(choose_pause(took_s)):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            began = anyio.current_time()
            state = await self._read()
            took_s = anyio.current_time() - began if state is not None else 0.0
            if state is not None:
                self.reading = await _compute(build_reading, state, self.reading.scope, self.reading)
                self._renewed.set()
            self.show_all()

    async def _read(self) -> ClusterState | None:
        """Return the present state; None where there is no answer, which ``failure`` says."""
        try:
            state = await self._source.read()
        except (KerfError, BaseExceptionGroup) as error:
            failures = [*iter_leaf_errors(error)]
            if not all(isinstance(each, KerfError) for each in failures):
                raise
            self.failure = str(failures[0])
            return None
        self.failure = ""
        return state

    async def _explain(self) -> None:
        """Find out why claims wait, while readings go on: of each all that have no report, and others for some time."""
        while True:
            until = anyio.current_time() + _EXPLAIN_S
            while chosen := find_unexplained(self.reading, 1):
                [subject], made_of = chosen, self.reading
                if subject in made_of.reports and anyio.current_time() >= until:
                    break
                report = await _compute(explain_row, made_of.cluster, subject)
                self.reading = add_reports(self.reading, {subject: report}, made_of.number)
                self.show_all()
            await self._renewed.wait()
            self._renewed = anyio.Event()

    # what is shown

    @property
    def columns(self) -> int:
        """The columns of the terminal, as far as text is made for so few."""
        return max(_NARROWEST, self.size.width)

    def show_all(self) -> None:
        """Show the reading, as it is sorted and filtered."""
        if isinstance(self.screen, ReportScreen):
            return
        self._show_title()
        text = self.query_one("#filter", Input).value
        self.query_one("#cards", LinePane).show([*self._list_card_lines(text)])
        rows = [row for row in self.reading.overview.claims if matches(row, text)]
        rows = sort_rows(rows, self._sort, is_reverse=self._is_reverse)
        header, lines = format_rows(rows, self.columns - 1)
        self.query_one("#header", Static).update(header)
        self.query_one(ClaimPane).show_rows(rows, lines)
        self._show_detail()

    def _list_card_lines(self, text: str) -> Iterator[str]:
        width = min(_WIDEST, self.columns - 1)
        overview = self.reading.overview
        yield from describe_forbidden(overview.forbidden_lists, width)
        yield from describe_free(overview, width)
        if self.reading.pictures:
            yield from draw_nodes(self.reading, width, text)
        else:
            yield "no card is published"

    def _show_title(self) -> None:
        overview = self.reading.overview
        read_at = format_time(overview.gathered_at)
        about = f"by {self._sort}{', reverse' if self._is_reverse else ''}"
        if self.failure:
            text = f"NOT CURRENT since {read_at}: {to_one_line(self.failure)}"
        else:
            text = f"kerf top  {read_at}  {describe_counts(overview)}; {about}"
        title = self.query_one("#title", Static)
        title.update(text)
        title.styles.text_style = "bold reverse" if self.failure else "bold"

    def _show_detail(self) -> None:
        row = self.query_one(ClaimPane).chosen
        most = _DETAIL if self.columns >= _WIDE else _NARROW_DETAIL
        lines = describe_row(row, min(_WIDEST, self.columns - 1))[:most] if row else ["no claim"]
        self.query_one("#about", Static).update(Text("\n").join(map(Text.from_ansi, lines)))
        self.query_one("#about", Static).styles.height = len(lines)

    # keys

    @on(ClaimPane.Moved)
    def _on_moved(self) -> None:
        self._show_detail()

    @on(ClaimPane.Asked)
    def _on_asked(self) -> None:
        row = self.query_one(ClaimPane).chosen
        if row is not None:
            self.run_worker(self._show_report(row.subject), exclusive=True, group="report")

    async def _show_report(self, subject: Subject) -> None:
        width = min(_WIDEST, self.columns - 1)
        lines = await _compute(_render_report, self.reading, subject, width)
        self.push_screen(ReportScreen(lines), self._on_closed)

    def _on_closed(self, _: None) -> None:
        self.show_all()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    @on(Input.Changed)
    def _on_changed(self) -> None:
        self.show_all()

    @on(Input.Submitted)
    def _on_submitted(self) -> None:
        self.query_one(ClaimPane).focus()

    def action_clear(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("shown")
        self.query_one(ClaimPane).focus()

    def action_sort(self) -> None:
        keys = [*SORT_KEYS]
        self._sort = keys[(keys.index(self._sort) + 1) % len(keys)]
        self.show_all()

    def action_reverse(self) -> None:
        self._is_reverse = not self._is_reverse
        self.show_all()

    def action_read(self) -> None:
        """Read again now, and not only after the pause."""
        self._wanted.set()


async def watch_api_server(first: Reading, kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Show the cluster that the kubeconfig names until the user ends it; ``first`` has been read of it."""
    access = await load_access(kubeconfig, context)
    async with Client(access, user_agent="kerf-top") as client:
        await _show(TopApp(first, ApiServerSource(client, namespace)))


async def watch_file(first: Reading, state: ClusterState) -> None:
    """Show a state that stays as it is."""
    await _show(TopApp(first, FileSource(state)))


async def _show(app: TopApp) -> None:
    await app.run_async()
    if app.fault is not None:
        raise app.fault


def _render_report(reading: Reading, subject: Subject, width: int) -> list[str]:
    """Return the report in lines; what has gone since is said in one."""
    try:
        report = explain_row(reading.cluster, subject)
    except KerfError as error:
        return [to_one_line(str(error))]
    return [line for text in render_answer(reading.cluster, report, width) for line in text.split("\n")]


async def _compute(function: Any, *args: Any) -> Any:  # noqa: ANN401  (as ``to_thread.run_sync``)
    """Run ``function(*args)`` in a thread, which is left alone when the application ends."""
    return await to_thread.run_sync(function, *args, abandon_on_cancel=True)


def _to_strip(line: str) -> Strip:
    text = Text.from_ansi(line)
    segments: list[Segment] = []
    position = 0
    for span in text.spans:  # of one line in order, none within another
        if span.start > position:
            segments.append(Segment(text.plain[position : span.start]))
        style = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        segments.append(Segment(text.plain[span.start : span.end], style))
        position = span.end
    segments.append(Segment(text.plain[position:]))
    return Strip(segments)


def _measure(line: str) -> int:
    return cell_len(Text.from_ansi(line).plain) if "\x1b" in line else cell_len(line)
