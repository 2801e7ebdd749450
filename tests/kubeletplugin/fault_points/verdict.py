"""The judge of a node: what is on the cards, asked without Kerf, against files, records, and what the kubelet knows."""

import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME
from kerf_dra.driver.kubeletplugin.claims.device_metadata import FOLDER
from tests.kubeletplugin.fault_points.cards import COMPUTE_MODE
from tests.kubeletplugin.fault_points.node import METADATA, SHARING, Node, Place

_UNSHARED = (COMPUTE_MODE, 0)
"""Compute mode and time slice of a card before and after it is shared."""
_WHOLE = re.compile(r"(?P<card>gpu-\d+)(-shared)?")
_LONGEST_WRITE_S = 0.3
"""How long a write of a small file may take on a busy machine."""
_DEVICE = re.compile(r"gpu-(?P<card>\d+)-(?P<profile>\dg-\d+gb)-at-(?P<start>\d+)")


def judge(node: Node, *, is_prepared: bool) -> Iterator[str]:
    """What is wrong, now that all claims of the node are prepared, or none is."""
    claims = node.claims if is_prepared else ()
    found = node.cards.look()
    wanted = {place for held in claims for place in places_of(held).values()}
    yield from (f"leaked: {place} is on a card, and no claim has it" for place in found.keys() - wanted)
    yield from (f"lost: {place} is on no card" for place in wanted - found.keys())
    yield from _judge_files(node, {held.metadata.uid: held for held in claims}, found)
    yield from _judge_sharing(node, {name for held in claims for name in _whole_cards_of(held).values()})
    yield from _judge_records(node, {held.metadata.uid for held in claims})
    known = {uid for uid, answer in node.read_answers().items() if answer is not None}
    if known != {held.metadata.uid for held in claims}:
        yield f"the kubelet knows {known} as prepared"


def judge_answers(node: Node, *, are_ending: bool) -> Iterator[str]:
    """What is wrong with claims that the kubelet has an answer for, right after a restart.

    Claims that are ``are_ending`` may be prepared still, although a call for their end was made; others must be.
    """
    found, answers = node.cards.look(), node.read_answers()
    for held in node.claims:
        places = set(places_of(held).values())
        file = node.settings.cdi_dir / f"k8s.gpu.kerf.dev-claim_{held.metadata.uid}.json"
        match answers.get(held.metadata.uid, ""):
            case None if found.keys() & places or file.exists():
                yield f"{held.metadata.uid} was unprepared, and is there again"
            case dict() if not are_ending and (places - found.keys() or not file.exists()):
                yield f"{held.metadata.uid} was prepared, and is not there: {found}, {file.exists()}"


def places_of(held: ResourceClaim) -> Mapping[str, Place]:
    """The places of a claim's partitions, by their names."""
    places: dict[str, Place] = {}
    assert held.status.allocation is not None
    for result in held.status.allocation.devices.results:
        match = _DEVICE.fullmatch(result.device)
        if match is None:
            continue
        places[result.device] = (int(match["card"]), match["profile"].replace("-", "."), int(match["start"]))
    return places


def _whole_cards_of(held: ResourceClaim) -> Mapping[str, str]:
    """The names of the whole cards that a claim has, or has a share of, by those of the devices."""
    assert held.status.allocation is not None
    matches = (_WHOLE.fullmatch(result.device) for result in held.status.allocation.devices.results)
    return {match.group(): match["card"] for match in matches if match is not None}


def _judge_sharing(node: Node, shared: set[str]) -> Iterator[str]:
    """What is wrong with how cards are shared: those of claims as the node's are, the others not at all."""
    cards = node.cards.look_at_wholes()
    for name, card in cards.items():
        sharing = node.sharing if name in shared else None
        wanted = (sharing.compute_mode, sharing.time_slice) if sharing is not None else _UNSHARED
        if (card.compute_mode, card.time_slice) != wanted:
            yield f"{name} has the compute mode {card.compute_mode} and the time slice {card.time_slice}, not {wanted}"
    recorded = {path.parent.name for path in (node.root / SHARING).rglob("*.json")}
    if recorded != {cards[name].uuid for name in shared}:
        yield f"it is recorded that {recorded} are shared"
    for request in (node.root / SHARING).rglob("request.json"):
        limit = json.loads(request.read_text())["activeThreadPercentage"]
        if node.sharing is not None and limit != node.sharing.active_thread_percentage:
            yield f"the limit of {request.parent.name} is {limit} %, not {node.sharing.active_thread_percentage} %"


def _judge_files(node: Node, claims: Mapping[str, ResourceClaim], found: Mapping[Place, str]) -> Iterator[str]:
    wanted = {f"k8s.gpu.kerf.dev-claim_{uid}.json": held for uid, held in claims.items()}
    there = {path.name for path in node.settings.cdi_dir.iterdir()}
    yield from (f"stale: {name}" for name in there - wanted.keys())
    yield from (f"missing: {name}" for name in wanted.keys() - there)
    uses: Counter[str] = Counter()
    for name in there & wanted.keys():
        uuids = _read_uuids(json.loads((node.settings.cdi_dir / name).read_text()))
        uses.update(uuid for device, uuid in uuids.items() if not device.endswith("-shared"))
        given = {device: found.get(place) for device, place in places_of(wanted[name]).items()}
        wholes = _whole_cards_of(wanted[name]).items()
        given |= {device: node.cards.look_at_wholes()[card].uuid for device, card in wholes}
        if uuids != given:
            yield f"{name} gives a container {uuids}, and on the cards is {found}"
    yield from (f"double use: {uuid} is in {count} claims" for uuid, count in uses.items() if count > 1)
    metadata = node.settings.plugin_dir / FOLDER
    described = {path.name for path in metadata.iterdir()} if metadata.is_dir() else set()
    if described != {uid for uid, held in claims.items() if _is_described(held)}:
        yield f"device metadata is there of {described}"
    yield from (f"stray: {path.name}" for path in _list_strays(node))


def _list_strays(node: Node) -> list[Path]:
    """The files that interrupted writes have left, not those that another thread of this process is about to rename."""
    end = time.monotonic() + _LONGEST_WRITE_S
    while True:
        strays = [path for folder in node.folders for path in folder.rglob("*") if path.suffix in (".new", ".tmp")]
        if not strays or time.monotonic() > end:
            return strays


def _is_described(held: ResourceClaim) -> bool:
    assert held.status.allocation is not None
    return any(
        one.opaque is not None and one.opaque.parameters == METADATA for one in held.status.allocation.devices.config
    )


def _read_uuids(spec: Mapping[str, list[Mapping[str, Mapping[str, list[str]]]]]) -> dict[str, str]:
    """The UUIDs that containers get, by the names of the devices."""
    found = {}
    for device in spec["devices"]:
        for variable in device["containerEdits"].get("env", []):
            name, _, value = variable.partition("=")
            if name.startswith("KERF_DEVICE_"):
                found[name.removeprefix("KERF_DEVICE_").lower().replace("_", "-")] = value
    return found


def _judge_records(node: Node, wanted: set[str]) -> Iterator[str]:
    connection = sqlite3.connect(f"file:{node.settings.state / FILE_NAME}?mode=ro", uri=True)
    try:
        records = {uid for (uid,) in connection.execute("SELECT uid FROM claims")}
        notes = {uid for (uid,) in connection.execute("SELECT uid FROM notes")}
    finally:
        connection.close()
    if records != wanted or notes != wanted:
        yield f"records are there of {records}, notes of {notes}"
