"""Drawings of a demo's cards and words for what is on them. Pure but for the display."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from string import digits
from typing import Final

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.observation import CardState, describe_part, device_key, find_users
from kerf_dra.driver.demo.report import ContainerReport, DiscoveredDeviceReport, LeftoverReport, PodReport
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.partitions.card_pictures.card_picture import units_of
from kerf_dra.driver.partitions.card_pictures.text_picture import DrawnCard

_CONTAINERS: Final = 4
"""Containers whose devices are shown; a document (``--output json``) has all."""
_VALUES: Final = ("KERF_", "ZE_")
"""How the environment variables begin that name a container's devices and limits; ``ZE_``: oneAPI Level Zero's."""
_DEVICE: Final = "KERF_DEVICE_"
"""How those begin that name devices: their values say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of ``kerf why`` about a pod."""

    pod: ObjectRef
    is_final: bool
    """Whether the pod stays as it is until a person acts."""
    lines: tuple[str, ...]


def introduce(display: Display, cards: Iterable[CardState], kubeconfig: Path, logs: Mapping[str, Path]) -> None:
    """Show the nodes and their cards, how to reach the cluster, and where ``logs`` are, by program."""
    by_node: dict[str, list[CardState]] = {}
    for card in cards:
        by_node.setdefault(card.node, []).append(card)
    for names, drawn in describe_nodes([*by_node.values()]):
        display.say("")
        display.say(f"{names} {'each have' if ' ' in names else 'has'}:")
        display.cards(drawn, {})
    display.say("")
    display.items([("look inside", f"kubectl --kubeconfig {kubeconfig} get pods -A")])
    display.items([(f"log of {name}", str(path)) for name, path in logs.items()])


def draw_card(display: Display, cards: Mapping[str, CardState], labels: Mapping[str, str]) -> None:
    """Draw one card at several times, each with a word for it."""
    rows = [
        DrawnCard(
            units=units_of(card.units),
            names=(f"{card.node}/{card.name}" if number == 0 else "", when),
            note=describe_free(card) if card.is_free else "",
        )
        for number, (when, card) in enumerate(cards.items())
    ]
    display.cards(rows, labels)


def draw_cluster(display: Display, cards: Iterable[CardState], pods: Iterable[PodReport]) -> None:
    """Draw every card in use, with the names of its pods."""
    used = [card for card in cards if not card.is_free]
    nodes = [card.node for card in used]
    rows = [
        DrawnCard(units=units_of(card.units), names=(card.node if nodes.index(card.node) == number else "", card.name))
        for number, card in enumerate(used)
    ]
    users = find_users(pods)
    display.cards(rows, {key: ", ".join(pod.name for pod in of_device) for key, of_device in users.items()})


def show_discovered_devices(display: Display, devices: Sequence[DiscoveredDeviceReport]) -> None:
    """Show the devices that nodes have found by discovery, with the nodes that see each and its users."""
    if devices:
        display.say("")
        display.say("Nodes have found:")
        display.items([(device.name, _describe_discovered(device)) for device in devices])


def show_pods(display: Display, pods: Sequence[PodReport], took_s: float) -> None:
    """Say which pods run, and what they have."""
    if pods:
        display.say(f"{len(pods)} pod{' runs' if len(pods) == 1 else 's run'}, after {took_s:.1f} s:")
        display.items([(pod.ref, _describe_pod(pod)) for pod in sorted(pods, key=lambda pod: pod.ref)])


def show_containers(display: Display, pods: Sequence[PodReport]) -> None:
    """Say what the containers see, those of the first pods."""
    containers = [(pod, container) for pod in pods for container in pod.containers]
    display.say("")
    display.items(
        [(f"{pod.name}, {each.name} sees", describe_container(each)) for pod, each in containers[:_CONTAINERS]]
    )
    if len(containers) > _CONTAINERS:
        display.say(f"and {count(len(containers) - _CONTAINERS, 'container')} more; --output json has all")


def show_explanation(display: Display, explanation: Explanation) -> None:
    """Show the answer of ``kerf why`` about a pod that does not run."""
    pod = explanation.pod
    display.say(f"Pod {pod} does not run. `kerf why pod {pod.name} -n {pod.namespace}` says:")
    display.quote(["", *(f"  {line}" for line in explanation.lines), ""])


def describe_left(left: LeftoverReport) -> str:
    return (
        f"left: {left.partitions} partitions, {left.cdi_files} CDI files, "
        f"{left.checkpoint_records} checkpoint records, {left.claims} claims"
    )


def _describe_discovered(device: DiscoveredDeviceReport) -> str:
    names = ", ".join(ref.rpartition("/")[2] for ref in device.users)
    used = f"{len(device.users)} of {count(device.capacity, 'user')}"
    return f"seen by {_join_names(device.nodes)}; {used}{names and f': {names}'}"


def _describe_pod(pod: PodReport) -> str:
    claimed = [
        device.device if device.driver == SHARED.driver else f"{device.device} ({describe_part(device)})"
        for device in pod.devices
    ]
    counted = [f"{id_} ({resource})" for resource, ids in pod.extended_devices.items() for id_ in ids]
    return f"{pod.node}: {', '.join([*claimed, *counted]) or 'no devices'}"


def describe_free(card: CardState) -> str:
    return f"{count(len(card.units), card.unit)}, all free"


def describe_container(container: ContainerReport) -> str:
    """Return what a container sees: identities and limits from its environment, its device nodes."""
    values = [
        value if key.startswith(_DEVICE) else f"{key}={value}"
        for key, value in container.env.items()
        if key.startswith(_VALUES)
    ]
    return "  ".join([*values, *_join_device_nodes(container.device_nodes)]) or "no device"


def _join_device_nodes(paths: Sequence[str]) -> list[str]:
    """Return device nodes, those that follow one another and differ in a number only as one.

    >>> _join_device_nodes(["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap57", "/dev/nvidia-caps/nvidia-cap58"])
    ['/dev/nvidia0', '/dev/nvidia-caps/nvidia-cap57,58']
    """
    names = [(path.rstrip(digits), path) for path in paths]
    runs = [[path for _, path in run] for _, run in groupby(names, key=itemgetter(0))]
    return [",".join([run[0], *(path[len(path.rstrip(digits)) :] for path in run[1:])]) for run in runs]


def label_users(pods: Iterable[PodReport]) -> dict[str, str]:
    """Return who uses each device, by ``device_key``: the names of pods, and the part of the card."""
    pods = [*pods]
    parts = {device_key(one.pool, one.device): describe_part(one) for pod in pods for one in pod.devices}
    return {key: f"{', '.join(pod.name for pod in users)}: {parts[key]}" for key, users in find_users(pods).items()}


def label_profiles(pods: Iterable[PodReport]) -> dict[str, str]:
    """Return the profile or function of each device, by ``device_key``."""
    return {device_key(one.pool, one.device): one.profile or "the whole card" for pod in pods for one in pod.devices}


def label_functions(pods: Iterable[PodReport]) -> dict[str, str]:
    """Return what each pod's first container sees, by the ``device_key`` of the pod's devices."""
    return {
        device_key(one.pool, one.device): describe_container(pod.containers[0]) for pod in pods for one in pod.devices
    }


def describe_nodes(nodes: Sequence[Sequence[CardState]]) -> list[tuple[str, list[DrawnCard]]]:
    """Return the names of nodes that are alike, and their cards in rows, of which those that are alike share one."""
    alike: dict[tuple[tuple[str, str, int], ...], list[Sequence[CardState]]] = {}
    for cards in nodes:
        alike.setdefault(tuple((card.name, card.model, len(card.units)) for card in cards), []).append(cards)
    return [(_join_names([cards[0].node for cards in group]), _describe_cards(group[0])) for group in alike.values()]


def _describe_cards(cards: Sequence[CardState]) -> list[DrawnCard]:
    alike: dict[tuple[str, int, str], list[CardState]] = {}
    for card in cards:
        alike.setdefault((card.model, len(card.units), card.unit), []).append(card)
    return [
        DrawnCard(
            units=units_of([""] * len(group[0].units)),
            names=(_join_names([card.name for card in group]), group[0].model),
            note=count(len(group[0].units), group[0].unit) + (" each" if len(group) > 1 else ""),
        )
        for group in alike.values()
    ]


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
