"""Generates the diagrams of ``docs/concepts.md``: who says what from a pod to the hardware, the life of a claim, and
the calls between kubelet and plugin; and the life of a claim of ``docs/classic.md``.

Names of devices are those that the allocator gives for an example, names of calls and sockets those of the code. A test
generates the diagrams into another folder and compares.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kerf_dra.api.dra import health, v1, v1alpha3
from kerf_dra.api.podresources.v1 import LIST
from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster
from tools.generate.diagram import Box, build_diagram, draw_arrow, draw_text
from tools.generate.page_block import ROOT
from tools.generate.sequence_diagram import Lane, Step, draw_sequence

__all__ = ["CALLS", "CLASSIC", "LIFE", "ROOT", "ROUTE", "generate"]

ROUTE: Final = Path("docs/pictures/who-says-what.svg")
LIFE: Final = Path("docs/pictures/claim-life.svg")
CALLS: Final = Path("docs/pictures/kubelet-calls.svg")
CLASSIC: Final = Path("docs/pictures/classic-claim-life.svg")

_WIDTH: Final = 760.0
_LEFTS: Final = (0.0, 282.0, 564.0)
_TOPS: Final = (24.0, 134.0, 244.0, 354.0)
"""Pixels of the columns and rows of the route from a pod to hardware."""
_BOX: Final = (195.0, 58.0)
"""Pixels of a box there."""


def generate(target: Path) -> list[Path]:
    """Write the diagrams below ``target`` and return their paths relative to it."""
    pictures = {ROUTE: _draw_route(), LIFE: _draw_life(), CALLS: _draw_calls(), CLASSIC: _draw_classic_life()}
    for path, picture in pictures.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(picture, encoding="utf-8")
    return [*pictures]


def _draw_route() -> str:
    """Who writes which object, from a pod to the hardware, for an example."""
    now = allocate_claims(gpu_cluster(), claim("web", "1g-20gb"))
    [result] = [each for one in now.claims if one.status.allocation for each in one.status.allocation.devices.results]
    rows = (
        (("administrator", "ResourceClass"), ("user", "ResourceClaimTemplate"), ("user", "Pod")),
        (("Kerf's controller", "DeviceClass"), ("kube-controller-manager", "ResourceClaim"), None),
        (("Kerf's plugin", "ResourceSlice"), ("kube-scheduler", "allocation of the claim"), None),
        (("hardware", "card"), ("hardware", "partition"), ("container runtime", "container")),
    )
    kinds = (
        ("user",) * 3,
        ("kerf", "kubernetes", ""),
        ("kerf", "kubernetes", ""),
        ("hardware", "hardware", "kubernetes"),
    )
    notes = {
        "ResourceClass": "minimum: memory 18Gi",
        "Pod": "names the template",
        "ResourceSlice": f"{result.driver}, {result.pool}",
        "allocation of the claim": result.device,
    }
    boxes = {
        cell[1]: Box(
            left=_LEFTS[column],
            top=_TOPS[row],
            width=_BOX[0],
            height=_BOX[1],
            kind=kinds[row][column],
            above=cell[0],
            name=cell[1],
            below=(notes[cell[1]],) if cell[1] in notes else (),
        )
        for row, cells in enumerate(rows)
        for column, cell in enumerate(cells)
        if cell is not None
    }
    arrows = (
        ("Pod", "ResourceClaimTemplate", "names"),
        ("ResourceClass", "DeviceClass", "is compiled to"),
        ("ResourceClaimTemplate", "ResourceClaim", "is copied for the pod"),
        ("ResourceClaim", "DeviceClass", "names"),
        ("DeviceClass", "ResourceSlice", "selects devices by CEL"),
        ("ResourceClaim", "allocation of the claim", "waits for"),
        ("ResourceSlice", "allocation of the claim", "a device of"),
        ("card", "ResourceSlice", "is published as"),
        ("allocation of the claim", "partition", "the kubelet has it prepared"),
        ("card", "partition", "is cut"),
        ("partition", "container", "CDI file"),
        ("Pod", "container", "is started by the kubelet"),
    )
    elements = [element for start, end, text in arrows for element in _join(boxes[start], boxes[end], text)]
    elements += [element for box in boxes.values() for element in box.draw()]
    elements += [
        draw_text(left, 14, word, "faint")
        for left, word in zip(_LEFTS, ("what there is", "what is asked for", "what runs"), strict=True)
    ]
    described = "; ".join(
        f"{start} {text} {end}" if text in ("names", "waits for") else f"{start}, {text}: {end}"
        for start, end, text in arrows
    )
    title = "Who says what, from a pod to the hardware"
    return build_diagram((_WIDTH, _TOPS[-1] + _BOX[1] + 4), title, f"{described}.", elements)


def _join(start: Box, end: Box, text: str) -> Iterator[str]:
    """Yield an arrow between boxes of one row or one column."""
    if start.top == end.top:
        y = start.top + start.height / 2
        ends = (start.right, end.left) if start.left < end.left else (start.left, end.right)
        yield from draw_arrow((ends[0], y), (ends[1], y), text)
    else:
        ends = (start.bottom, end.top) if start.top < end.top else (start.top, end.bottom)
        is_left = start.left == _LEFTS[-1]  # there is no room to its right
        yield from draw_arrow((start.middle, ends[0]), (start.middle, ends[1]), text, is_left=is_left)


def _draw_life() -> str:
    """The life of a pod's claim, with the phases by which Kerf's metrics count it."""
    lanes = (
        Lane(name="kube-controller-manager", kind="kubernetes", middle=172, width=176),
        Lane(name="kube-scheduler", kind="kubernetes", middle=324, width=116),
        Lane(name="kubelet", kind="kubernetes", middle=448, width=116),
        Lane(name="Kerf's plugin", kind="kerf", middle=572, width=112),
        Lane(name="card, CDI file", kind="hardware", middle=698, width=116),
    )
    manager, scheduler, kubelet, plugin, card = range(len(lanes))
    steps = (
        Step(phase="queued", source=manager, text="creates the claim from the pod's template"),
        Step(phase="allocated", source=scheduler, text="writes driver, pool and device, and binds the pod"),
        Step(phase="preparing", source=kubelet, target=plugin, text="prepare"),
        Step(source=plugin, target=card, text="make, write"),
        Step(phase="prepared", source=plugin, target=kubelet, text="CDI names"),
        Step(phase="running", source=kubelet, text="containers start, run and end"),
        Step(phase="releasing", source=kubelet, target=plugin, text="unprepare"),
        Step(source=plugin, target=card, text="remove both"),
        Step(source=plugin, target=kubelet, text="done"),
        Step(phase="free", source=manager, text="takes the allocation back, deletes the claim"),
    )
    return draw_sequence((_WIDTH, 2), "The life of a pod's claim", lanes, steps)


def _draw_calls() -> str:
    """The calls between kubelet and plugin on a node, with the names that they have in the code."""
    settings = Settings(node_name="node-1", family=GPU, backends=())
    lanes = (
        Lane(name="kubelet", kind="kubernetes", middle=44, width=84),
        Lane(name=f"Kerf's plugin, {GPU.driver}", kind="kerf", middle=500, width=190),
    )
    root = settings.kubelet_root
    prepare, unprepare = v1.SERVICE.prepare.path, v1.SERVICE.unprepare.path
    steps = (
        Step(
            heading=f"{settings.registration_socket.relative_to(root)}",
            source=0,
            target=1,
            text=GET_INFO.path[1:],
            is_name=True,
            note="driver, versions, path of dra.sock",
        ),
        Step(
            source=0, target=1, text=NOTIFY_REGISTRATION_STATUS.path[1:], is_name=True, note="publishes ResourceSlices"
        ),
        Step(
            heading=f"{settings.dra_socket.relative_to(root)}",
            source=0,
            target=1,
            text=prepare[1:],
            is_name=True,
            note="reads each claim at the API server, makes partitions, writes CDI files",
        ),
        Step(source=1, target=0, text="for each claim: devices and their CDI names, or an error"),
        Step(
            source=0,
            target=1,
            text=unprepare[1:],
            is_name=True,
            note="removes partitions and CDI files, from its records alone",
        ),
        Step(source=1, target=0, text="for each claim: nothing, or an error"),
        Step(source=0, target=1, text=health.V1.watch.path[1:], is_name=True),
        Step(source=1, target=0, text="a stream of devices and their health"),
        Step(
            heading=f"{settings.pod_resources_socket.relative_to(root)}",
            source=1,
            target=0,
            text=LIST.path[1:],
            is_name=True,
            note="which pods use which claims",
        ),
    )
    return draw_sequence((_WIDTH, 2), "Who calls whom on a node", lanes, steps, note_letters=36)


def _draw_classic_life() -> str:
    """The life of a pod's claim where Kerf's controller allocates (KEP-3063)."""
    lanes = (
        Lane(name="user", kind="user", middle=42, width=80),
        Lane(name="kube-scheduler", kind="kubernetes", middle=164, width=116),
        Lane(name="Kerf's controller", kind="kerf", middle=332, width=150),
        Lane(name="kubelet", kind="kubernetes", middle=466, width=84),
        Lane(name="Kerf's plugin", kind="kerf", middle=680, width=156),
    )
    user, scheduler, controller, kubelet, plugin = range(len(lanes))
    calls = (v1alpha3.SERVICE.prepare, v1alpha3.SERVICE.unprepare)
    prepare, unprepare = (call.path.rpartition("/")[2] for call in calls)
    steps = (
        Step(source=user, target=scheduler, text="Pod, template"),
        Step(source=scheduler, target=controller, text="potentialNodes"),
        Step(source=controller, target=scheduler, text="unsuitableNodes"),
        Step(source=scheduler, target=controller, text="selectedNode"),
        Step(source=controller, text="adds the finalizer, checks its lease"),
        Step(source=controller, target=scheduler, text="allocation, reservation"),
        Step(source=scheduler, target=kubelet, text="binds the pod"),
        Step(source=kubelet, target=plugin, text=prepare, is_name=True),
        Step(source=plugin, text="makes the partition, writes the CDI file"),
        Step(source=user, target=kubelet, text="deletes the pod"),
        Step(source=kubelet, target=plugin, text=unprepare, is_name=True),
        Step(source=plugin, text="removes both"),
        Step(source=controller, text="clears the allocation, then the finalizer"),
    )
    return draw_sequence((_WIDTH, 2), "The life of a pod's claim in a classic cluster", lanes, steps)
