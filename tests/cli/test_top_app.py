"""The live terminal of ``kerf top``, driven by Textual's pilot: what it shows, and what it rewrites."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Input

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.cli.cluster.top_app import ClaimPane, LinePane, ReportScreen, TopApp
from kerf_dra.driver.cli.cluster.top_state import build_reading, choose_pause
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.overview.cluster_overview import Scope
from tests.diagnostics.vendor_slices import CLASSES, intel_slices
from tests.fakes.cluster_states import (
    allocate_claims,
    allocated_claim,
    claim,
    gpu_cluster,
    node,
    placed_pod,
    pod,
    replace,
    state,
)

LONGEST_S: Final = 100.0
"""Seconds that a test waits for what threads compute: on an idle machine they take a second, of 10,000 claims ten."""
HOSTILE: Final = "[red]\x1b[2J\x1b]0;owned\x07\u202eevil\nline[/red]"

Screen = tuple[TopApp, "FakeSource", Pilot[None]]


class FakeSource:
    """A cluster whose states, and failures, a test gives one by one; a reading waits for the next."""

    def __init__(self) -> None:
        self._given: list[ClusterState | Exception] = []
        self._more = anyio.Event()
        self.begun = 0
        """How often a reading has begun."""

    async def read(self) -> ClusterState:
        self.begun += 1
        while not self._given:
            await self._more.wait()
        given = self._given.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    def give(self, given: ClusterState | Exception) -> None:
        self._given.append(given)
        self._more.set()
        self._more = anyio.Event()


def busy(at: str = "2026-11-21T08:00:00+00:00") -> ClusterState:
    """Two nodes with a card each, three claims with pods, and two pods that wait for more than is free."""
    now = replace(gpu_cluster(nodes=2), gathered_at=at)
    now = allocate_claims(now, claim("web", "1g-10gb"), claim("train", "3g-40gb"), on="node-1")
    now = allocate_claims(now, claim("batch", "4g-40gb"), on="node-2")
    running = [placed_pod(name, name, phase="Running") for name in ("web", "train")]
    running.append(placed_pod("batch", "batch", on="node-2", phase="Running"))
    waiting = (claim("big", "whole"), claim("bigger", "whole", "whole"))
    return replace(now, claims=(*now.claims, *waiting), pods=(*running, pod("p", "big"), pod("q", "bigger")))


def without(now: ClusterState, *names: str) -> ClusterState:
    """The cluster without claims of these names and the pods that use them."""
    pods = tuple(each for each in now.pods if not {*each.claim_names().values()}.intersection(names))
    return replace(now, claims=tuple(each for each in now.claims if each.metadata.name not in names), pods=pods)


@asynccontextmanager
async def opened(first: ClusterState, *, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Screen]:
    """A live terminal that has shown ``first``, and why all wait that do."""
    source = FakeSource()
    app = TopApp(build_reading(first, Scope()), source)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: all(row.why for row in app.reading.overview.waiting))
        await pilot.pause()
        yield app, source, pilot


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    with anyio.fail_after(LONGEST_S):
        while not condition():
            await pilot.pause()


async def show(screen: Screen, given: ClusterState | Exception) -> None:
    """Have the application read ``given`` and show it."""
    app, source, pilot = screen
    before = app.reading
    source.give(given)
    await pilot.press("space")
    if isinstance(given, Exception):
        await until(pilot, lambda: bool(app.failure))
    else:
        await until(pilot, lambda: app.reading.number > before.number)
        await until(
            pilot, lambda: app.reading.explained.keys() >= {row.subject for row in app.reading.overview.waiting}
        )
    await pilot.pause()


def lines(app: TopApp) -> list[str]:
    """The text on the screen."""
    return ["".join(segment.text for segment in strip).rstrip() for strip in app.screen._compositor.render_strips()]


def find(app: TopApp, *parts: str) -> str:
    """The first line with all of these parts; empty: there is none."""
    return next((line for line in lines(app) if all(part in line for part in parts)), "")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each line has been drawn, by pane and text."""
    counted: Counter[str] = Counter()
    render_line = LinePane.render_line

    def count(self: LinePane, y: int) -> Strip:
        strip = render_line(self, y)
        counted[f"{self.id}: {strip.text.rstrip()}"] += 1
        return strip

    monkeypatch.setattr(LinePane, "render_line", count)
    return counted


async def test_one_screen_says_who_holds_what_what_is_free_why_one_waits_and_what_would_make_room() -> None:
    async with opened(busy()) as (app, _, _):
        assert lines(app)[0] == "kerf top  08:00:00 UTC  2 nodes, 2 cards, 5 claims, 2 waiting; by waiting"
        assert find(app, "node-1  gpu-0  [ a a a a . . b - ]  a = default/train  b = default/web")
        assert find(app, "h100-80gb-sxm: free 5 1g.10gb, or 2 1g.10gb+me, or 3 1g.20gb")
        assert find(app, "default/train", "train", "allocated", "node-1/gpu-0-3g-40gb-at-0")
        assert find(app, "default/big", "p", "pending", "counters: it fits on none")
        assert find(app, "-> it would fit if these claims ended on node-2: default/batch (pod")
        assert " ".join(lines(app)[-1].split()) == "⏎ why / filter s sort r reverse q quit"


async def test_a_refresh_rewrites_only_the_rows_that_changed(drawn: Counter[str]) -> None:
    first = busy()
    async with opened(first) as screen:
        drawn.clear()
        [train] = [each for each in first.claims if each.metadata.name == "train"]
        ending = replace(train, metadata=replace(train.metadata, deletion_timestamp="2026-11-21T08:00:00Z"))
        await show(screen, replace(first, claims=tuple(ending if each is train else each for each in first.claims)))
        assert [line for line in drawn if line.startswith("cards")] == []
        changed = [line for line in drawn if line.startswith("claims")]
        assert changed
        assert all("default/train" in line or "default/batch" in line or "default/big" in line for line in changed)


async def test_a_refresh_of_what_has_not_changed_rewrites_nothing(drawn: Counter[str]) -> None:
    async with opened(busy()) as screen:
        drawn.clear()
        await show(screen, busy(at="2026-11-21T08:00:05+00:00"))
        assert "08:00:05" in lines(screen[0])[0]
        assert drawn == {}


async def test_a_change_of_one_card_rewrites_its_lines_only(drawn: Counter[str]) -> None:
    async with opened(busy()) as screen:
        drawn.clear()
        other = allocate_claims(without(busy(), "batch"), claim("batch", "3g-40gb"), on="node-2")
        await show(screen, other)
        cards = [line for line in drawn if line.startswith("cards")]
        assert any("node-2" in line for line in cards)
        assert not any("node-1" in line for line in cards)


async def test_an_api_server_that_goes_away_leaves_the_last_view_and_comes_back() -> None:
    async with opened(busy()) as screen:
        app = screen[0]
        await show(screen, TransientError(f"connection refused {HOSTILE}"))
        assert lines(app)[0].startswith("NOT CURRENT since 08:00:00 UTC: connection refused [red]")
        assert find(app, "default/train", "allocated")
        again = ExceptionGroup("lists", [TransientError("no slices"), TransientError("no pods")])
        await show(screen, again)
        assert "NOT CURRENT since 08:00:00 UTC" in lines(app)[0]
        await show(screen, without(busy(at="2026-11-21T08:03:00+00:00"), "train"))
        assert lines(app)[0].startswith("kerf top  08:03:00 UTC")
        assert not find(app, "default/train", "allocated")


async def test_it_reads_again_after_a_pause_or_when_it_is_asked_to() -> None:
    began = anyio.current_time()
    async with opened(busy()) as screen:
        source = screen[1]
        for _ in range(20):
            source.give(busy())
        for asked in (1, 2):
            await show(screen, busy())
            pauses = (anyio.current_time() - began) / choose_pause(0)
            assert asked <= source.begun <= asked + pauses


async def test_a_clock_that_is_set_back_makes_no_age_negative() -> None:
    def aged(at: str) -> ClusterState:
        now = busy(at)
        created = [
            replace(each, metadata=replace(each.metadata, creation_timestamp="2026-11-21T07:59:00Z"))
            for each in now.claims
        ]
        return replace(now, claims=tuple(created))

    async with opened(aged("2026-11-21T08:00:00+00:00")) as screen:
        assert find(screen[0], "default/train", "60 s")
        await show(screen, aged("2026-11-21T07:00:00+00:00"))
        assert find(screen[0], "default/train", "  0 s")


async def test_a_fault_of_kerf_ends_it_and_is_not_taken_for_an_absent_server() -> None:
    async with opened(busy()) as (app, source, pilot):
        source.give(ZeroDivisionError("a fault"))
        await pilot.press("space")
        await until(pilot, lambda: app.fault is not None)
        assert app.failure == ""
    assert app.fault is not None
    assert [str(each) for each in app.fault.exceptions] == ["a fault"]


async def test_enter_shows_what_kerf_why_says_and_escape_goes_back() -> None:
    async with opened(busy()) as screen:
        app, _, pilot = screen
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        await pilot.pause()
        assert lines(app)[0] == "claim default/bigger: it fits on none of 2 nodes"
        assert find(app, "node-1: gpu-0 of gpu.kerf.dev/node-1/gpu: memory, multiprocessors,")
        await show(screen, without(busy(at="2026-11-21T08:03:00+00:00"), "bigger"))
        assert lines(app)[0] == "claim default/bigger: it fits on none of 2 nodes", "a report is not replaced"
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ReportScreen))
        await pilot.pause()
        assert lines(app)[0].startswith("kerf top  08:03:00 UTC")
        assert not find(app, "default/bigger")


async def test_the_chosen_claim_stays_chosen_wherever_it_moves() -> None:
    async with opened(busy()) as screen:
        app, _, pilot = screen
        await pilot.press("end")
        pane = app.query_one(ClaimPane)
        assert pane.chosen is not None
        assert pane.chosen.subject.name == "web"
        await pilot.press("r")
        await pilot.pause()
        assert (pane.chosen.subject.name, pane.rows[2].subject.name) == ("web", "web")
        await show(screen, without(busy(), "web"))
        assert pane.chosen is not None
        assert find(app, "default/batch")
        await pilot.press("pageup", "up", "home", "down", "pagedown", "k", "j")
        assert pane.chosen == pane.rows[-1]


async def test_keys_sort_reverse_and_filter() -> None:
    async with opened(busy()) as (app, _, pilot):

        def names() -> list[str]:
            return [row.subject.name for row in app.query_one(ClaimPane).rows]

        assert names() == ["big", "bigger", "batch", "train", "web"]
        await pilot.press("s")
        assert names() == ["batch", "big", "bigger", "train", "web"]
        assert "by name" in lines(app)[0]
        await pilot.press("r")
        assert names() == ["web", "train", "bigger", "big", "batch"]
        await pilot.press("slash", *"node-2")
        await pilot.pause()
        assert names() == ["bigger", "big", "batch"], "the reasons of two have the node"
        assert not find(app, "gpu-0", "[ a a a a . . b - ]"), "cards of other nodes are left out"
        await pilot.press("enter")
        assert app.query_one(ClaimPane).has_focus
        await pilot.press("escape")
        await pilot.pause()
        assert names() == ["web", "train", "bigger", "big", "batch"]
        assert not app.query_one(Input).display


async def test_a_filter_that_nothing_matches_leaves_an_empty_list() -> None:
    async with opened(busy()) as (app, _, pilot):
        await pilot.press("slash", *"[zzz")
        await pilot.pause()
        assert app.query_one(ClaimPane).rows == ()
        await pilot.press("enter", "down", "enter")
        await pilot.pause()
        assert find(app, "no claim")


@pytest.mark.parametrize("size", [(40, 20), (40, 12), (80, 24), (200, 60)], ids=str)
async def test_everything_has_room_in_any_terminal(size: tuple[int, int]) -> None:
    async with opened(busy(), size=size) as (app, _, pilot):
        for _ in range(2):
            assert len(lines(app)) == size[1]
            assert max(map(len, lines(app))) <= size[0]
            assert find(app, "default/big", "pending")
            assert find(app, "why")
            await pilot.resize_terminal(*size)
            await pilot.pause()


async def test_in_40_columns_the_chosen_claim_says_what_would_make_room() -> None:
    async with opened(busy(), size=(40, 24)) as (app, _, _):
        said = " ".join(" ".join(lines(app)).split())
        assert "it fits on none of 2 nodes (counters)" in said
        assert "ended on node-2: default/batch (pod default/batch)" in said


async def test_a_terminal_that_is_resized_has_what_there_is_room_for() -> None:
    async with opened(busy()) as (app, _, pilot):
        await pilot.resize_terminal(40, 24)
        await until(pilot, lambda: not find(app, "WHY IT WAITS"))
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: bool(find(app, "WHY IT WAITS")))


async def test_nothing_of_a_name_reaches_the_terminal_but_what_can_be_printed() -> None:
    now = busy()
    claims = tuple(
        replace(each, metadata=replace(each.metadata, name=f"{HOSTILE}{number}"))
        for number, each in enumerate(now.claims)
    )
    pods = tuple(
        replace(each, metadata=replace(each.metadata, name=f"{HOSTILE}{each.metadata.name}")) for each in now.pods
    )
    async with opened(replace(now, claims=claims, pods=pods)) as (app, _, pilot):
        assert find(app, "default/[red]"), "markup of others is text"
        assert all(line.isprintable() for line in lines(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        await pilot.pause()
        assert find(app, "[red]")
        assert all(line.isprintable() for line in lines(app))


async def test_names_of_253_characters_are_cut() -> None:
    long = "n" * 253
    now = busy()
    claims = tuple(
        replace(each, metadata=replace(each.metadata, name=f"{long[:-1]}{number}"))
        for number, each in enumerate(now.claims)
    )
    for width in (40, 80):
        async with opened(replace(now, claims=claims), size=(width, 24)) as (app, _, pilot):
            assert find(app, "nnn…", "pending")
            await pilot.press("enter")
            await until(pilot, lambda app=app: isinstance(app.screen, ReportScreen))  # type: ignore[misc]


def crowded() -> ClusterState:
    """A driver with 9,998 whole devices, each of which a claim has, and two claims of a class that does not exist."""
    number = 9_998
    now = state(node("node-1"), published=intel_slices("node-1", number), classes=CLASSES)
    [held] = allocate_claims(now, claim("held", "gpu.intel.com")).claims
    allocation = held.status.allocation
    assert allocation is not None
    [result] = allocation.devices.results
    devices = [device.name for each in now.slices for device in each.spec.devices]
    many = [
        allocated_claim(
            claim(f"held-{place:05}", "gpu.intel.com"),
            replace(allocation, devices=replace(allocation.devices, results=(replace(result, device=device),))),
        )
        for place, device in enumerate(devices)
    ]
    return replace(now, claims=(*many, claim("big", "absent"), claim("bigger", "absent")))


async def test_of_ten_thousand_claims_only_those_on_the_screen_are_drawn(drawn: Counter[str]) -> None:
    now = crowded()
    async with opened(now) as screen:
        app, _, pilot = screen
        assert "10000 claims, 2 waiting" in lines(app)[0]
        assert drawn.total() < 1_000
        drawn.clear()
        await pilot.press("end")
        await pilot.pause()
        assert find(app, "default/held-09997")
        assert drawn.total() < 200
        drawn.clear()
        await show(screen, replace(now, gathered_at="2026-11-21T08:00:09+00:00"))
        assert drawn == {}
