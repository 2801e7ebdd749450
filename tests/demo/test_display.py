"""What a demo prints at 60, 80 and 120 columns, as files in ``tests/demo/data``; with a terminal, and without one."""

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.demo.cluster_picture import (
    Explanation,
    draw_card,
    draw_cluster,
    introduce,
    label_profiles,
    label_users,
    show_containers,
    show_explanation,
    show_pods,
)
from kerf_dra.driver.demo.display import WIDEST, Display, TextDisplay
from kerf_dra.driver.demo.observation import CardState
from kerf_dra.driver.demo.report import ClaimReport, ContainerReport, DeviceReport, PodReport

DATA = Path(__file__).parent / "data"
GIB = 2**30


def card(node: str, name: str, *units: str) -> CardState:
    model, unit = ("quad", "slot") if name.startswith("fpga") else ("h100-80gb-sxm", "memory slice")
    return CardState(node=node, name=name, model=model, unit=unit, units=units)


def free(node: str) -> list[CardState]:
    gpus = [card(node, f"gpu-{number}", *[""] * 8) for number in range(2)]
    return [*gpus, card(node, "fpga-0", *[""] * 4)]


def pod(name: str, device: str, profile: str | None, memory: int | None = None) -> PodReport:
    found = DeviceReport(
        request="gpu", driver="d", pool="node-1/gpu", device=device, profile=profile, memory_bytes=memory, card="u"
    )
    variables = {"PATH": "/bin", f"KERF_DEVICE_{device}": "MIG-1cbe45a1-e830-5491-ba07-38cfcd7eac38"}
    nodes = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap57", "/dev/nvidia-caps/nvidia-cap58")
    container = ContainerReport(name="main", env=variables, device_nodes=nodes, mounts=())
    claim = ClaimReport(name="c", uid="u", devices=(found,), cdi_ids=())
    return PodReport(
        namespace="default", name=name, node="node-1", phase="Running", claims=(claim,), containers=(container,)
    )


BY_SIZE = pod("gpu-by-size", "gpu-0-1g-20gb-at-6", "1g.20gb", 20096 * 2**20)
SMALL = [pod(f"small-{number}", f"gpu-0-1g-10gb-at-{number}", "1g.10gb", 10 * GIB) for number in range(7)]
SHARED = [pod(f"share-{number}", "gpu-1-shared", None, 80 * GIB) for number in (1, 2)]
WHY = Explanation(
    pod=ObjectRef("default", "too-large"),
    is_final=True,
    lines=("pod default/too-large: it fits on none of 2 nodes", "", "what to do", "  -> add a node"),
)


async def tell(display: Display) -> None:
    """Show one of everything that a demo shows."""
    display.say("Kerf cuts GPUs and FPGAs to size when a pod asks for a part of one. No container runs here.")
    cards = [each for node in ("node-1", "node-2", "node-3") for each in free(node)]
    introduce(display, cards, Path("/tmp/kerf-12345678/kubeconfig"), {"controller": Path("/tmp/kerf-1/controller.log")})
    display.begin_step("A pod asks for a size")
    display.wait("0 of 1 pod running")
    display.say(
        "An administrator has made the class gpu-18gi: the smallest part of a GPU that has 18Gi of memory, whatever "
        "the model. The claim of pod gpu-by-size names it."
    )
    before, after = free("node-1")[0], card("node-1", "gpu-0", *[""] * 6, *["node-1/gpu/gpu-0-1g-20gb-at-6"] * 2)
    draw_card(display, {"before": before, "after": after}, label_users([BY_SIZE]))
    show_containers(display, [BY_SIZE])
    await display.hold()
    display.begin_step("One card, seven pods, and another one that two pods share")
    units = [f"node-1/gpu/gpu-0-1g-10gb-at-{number}" for number in range(7)]
    full = card("node-1", "gpu-0", *units, "")
    draw_card(display, {"before": before, "cut": full}, label_profiles(SMALL))
    draw_cluster(display, [full, card("node-1", "gpu-1", *["node-1/gpu/gpu-1-shared"] * 8)], [*SMALL, *SHARED])
    show_pods(display, [BY_SIZE, *SHARED], 1.26)
    show_explanation(display, WHY)
    display.verdict("OK 3 pods got what they asked for, and nothing is left, in 12 s.", is_good=True)


def written(columns: int, *, is_terminal: bool = False) -> tuple[TextDisplay, list[str]]:
    parts: list[str] = []
    return TextDisplay(parts.append, columns=columns, is_terminal=is_terminal), parts


@pytest.mark.parametrize("columns", [60, 80, 120])
async def test_the_text_at_usual_widths(columns: int) -> None:
    display, parts = written(columns)
    await tell(display)
    text = click.unstyle("".join(parts))
    assert text == (DATA / f"display-{columns}.txt").read_text()
    assert max(map(len, text.splitlines())) <= min(columns, WIDEST)


@pytest.mark.parametrize("columns", range(60, 130, 7))
async def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    display, parts = written(columns)
    await tell(display)
    lines = click.unstyle("".join(parts)).splitlines()
    assert [line for line in lines if len(line) > columns] == []


@given(text=st.lists(st.text("abcdefg.,-", min_size=1, max_size=30)).map(" ".join), columns=st.integers(40, 120))
def test_a_sentence_is_wrapped_between_words_and_loses_none(text: str, columns: int) -> None:
    display, parts = written(columns)
    display.begin_step("Step")
    display.say(text)
    _, *lines = click.unstyle("".join(parts)).splitlines()
    assert " ".join(" ".join(lines).split()) == text
    assert all(len(line) <= columns for line in lines)


async def test_what_is_waited_for_goes_from_a_terminal_and_is_in_no_file() -> None:
    display, parts = written(80, is_terminal=True)
    await tell(display)
    waits = next(number for number, part in enumerate(parts) if "0 of 1 pod running" in part)
    assert not parts[waits].endswith("\n")
    assert parts[waits + 1].startswith(f"\r{' ' * len(parts[waits])}\r"), "it is overwritten, also without colors"
    display, parts = written(80)
    await tell(display)
    assert not any("running" in part for part in parts)


async def test_a_document_is_not_mixed_with_text(capsys: pytest.CaptureFixture[str]) -> None:
    await tell(Display())
    assert capsys.readouterr() == ("", "")
