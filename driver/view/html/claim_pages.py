"""The pages of claims: their list, one claim from its request to a running container, and a pod with its claims."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.names import DeviceId, ObjectRef, list_names
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.diagnostics.explain.report import WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.overview.claim_rows import ClaimRow, Idleness, find_idleness, matches
from kerf_dra.driver.diagnostics.times import format_seconds
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.card_figures import CardStyle, list_pods, parse_pool, separate, show_legend
from kerf_dra.driver.view.html.cluster_pages import show_pager, show_table, show_unread
from kerf_dra.driver.view.html.elements import NOTHING, Child, Html, element, join
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.html.why_section import show_report
from kerf_dra.driver.view.snapshot_view import CLAIMS_OF_A_PAGE, SnapshotView, cut_page
from kerf_dra.driver.view.timeline import Moment, Timeline, build_timeline

_CARDS: Final = 8
"""Cards drawn of one claim or pod: as many as one node has."""
_PODS: Final = 3
"""Pods named of one claim in the list."""
_DEVICES: Final = 8
"""Idle devices named of one claim: as many cards as one node has."""


def show_claims(view: SnapshotView, *, text: str, number: int) -> Page:
    """Return the list of claims, and of pods that wait for one, that have ``text`` in what is listed of them."""
    parts = PartBuilder()
    found = {f"{each.subject.kind} {_read_ref(each)}": each for each in view.rows if matches(each, text)}
    listed = cut_page([*found], number, CLAIMS_OF_A_PAGE)
    rows = [_list_row(found[name]) for name in listed.names]
    header = ("Pod", "Claim", "State", "Node", "Devices")
    table = show_table(header, rows, caption="Claims") if rows else NOTHING
    return build_page(
        "Claims",
        addresses.CLAIMS,
        parts,
        element(
            "form",
            element("label", "Claims with ", element("input", type="search", name="text", value=text, size=16)),
            element("button", "Show"),
            action=addresses.CLAIMS,
            class_="filter",
        ),
        parts.add("div", "claims", table or element("p", "There is no such claim.")),
        show_pager(listed, addresses.CLAIMS, "claims", text=text),
    )


def show_claim(view: SnapshotView, ref: ObjectRef) -> Page | None:
    """Return a claim's page; None: there is no such claim."""
    claim = view.cluster.claims.get(ref)
    if claim is None:
        return None
    parts = PartBuilder()
    report = explain_claim(view.cluster, ref)
    pods = view.find_pods(claim)
    pod = next((view.cluster.pods[each] for each in pods if each in view.cluster.pods), None)
    users = [element("p", "Used by pod ", list_pods(pods))] if pods else [element("p", "No pod uses it.")]
    return build_page(
        f"Claim {ref}",
        addresses.CLAIM,
        parts,
        users,
        parts.add(
            "section",
            "why",
            element("h2", "State"),
            show_report(report),
            _show_idleness(find_idleness(claim, view.cluster.state.gathered_at)),
            show_unread(view),
        ),
        parts.add("section", "timeline", *_show_timeline(build_timeline(claim, pod))),
        parts.add("section", "devices", *_show_devices(view, claim)),
        _show_cards(view, parts, [claim], report),
    )


def show_pod(view: SnapshotView, ref: ObjectRef) -> Page | None:
    """Return a pod's page with what ``kerf why`` says; None: no such pod uses devices."""
    pod = view.cluster.pods.get(ref)
    if pod is None:
        return None
    report = explain_pod(view.cluster, ref)
    parts = PartBuilder()
    names = [ObjectRef(ref.namespace, name) for name in pod.all_claim_names]
    claims = [view.cluster.claims[each] for each in names if each in view.cluster.claims]
    links = [element("a", str(each), href=addresses.address_of_claim(each)) for each in names]
    node = pod.spec.node_name
    place = (
        element("p", "On ", element("a", f"node {node}", href=addresses.address_of_node(node)))
        if node
        else element("p", "On no node yet.")
    )
    return build_page(
        f"Pod {ref}",
        addresses.POD,
        parts,
        parts.add("div", "place", place, element("p", "Claims: ", separate(links)) if links else NOTHING),
        parts.add("section", "why", element("h2", "State"), show_report(report), show_unread(view)),
        _show_cards(view, parts, claims, report),
    )


def _show_idleness(idle: Idleness | None) -> Html:
    """Return since when devices of a claim are idle, as its node reports."""
    if idle is None:
        return NOTHING
    names = list_names([each.rpartition("/")[2] for each in idle.devices], _DEVICES)
    which = "Idle" if idle.is_whole else f"In part idle ({names})"
    since = element("time", idle.since, datetime=idle.since)
    return element("p", f"{which} for {format_seconds(idle.seconds)}: not used since ", since, ".")


def _list_row(row: ClaimRow) -> Sequence[Child]:
    ref = _read_ref(row)
    pods = [ObjectRef(ref.namespace, name) for name in row.pods]
    more = len(pods) - _PODS
    is_claim = row.subject.kind == "ResourceClaim"
    state = f"{row.shown_state}, and a pod waits" if row.waits and row.state == "allocated" else row.shown_state
    return (
        (list_pods(pods[:_PODS]), f" and {more} more" if more > 0 else ""),
        element("a", str(ref), href=addresses.address_of_claim(ref)) if is_claim else "none yet",
        state,
        list_names(row.nodes),
        list_names([each.partition("/")[2] for each in row.devices]),
    )


def _read_ref(row: ClaimRow) -> ObjectRef:
    return ObjectRef(row.subject.namespace, row.subject.name)


def _show_timeline(timeline: Timeline) -> Iterator[Html]:
    yield element("h2", "From request to running")
    rows = [_show_moment(each) for each in timeline.moments]
    header = ("Moment", "After", "Time")
    yield show_table(header, rows, caption="Moments, each with the seconds since the one before")
    if timeline.total_s is not None:
        yield element("p", f"{timeline.total_s:.0f} s in all. Times of the API are whole seconds.")


def _show_moment(moment: Moment) -> Sequence[Child]:
    time = element("time", moment.time, datetime=moment.time) if moment.time else "-"
    source = element("small", moment.source)
    return (moment.name, element("br"), source), "-" if moment.seconds is None else f"{moment.seconds:.0f} s", time


def _show_devices(view: SnapshotView, claim: ResourceClaim) -> Iterator[Html]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    yield element("h2", "What the container gets")
    data = {(each.driver, each.pool, each.device, each.share_id): each for each in claim.status.devices}
    for result in allocation.devices.results:
        yield element("h3", f"{result.request}: {result.id}")
        status = data.get((*result.id, result.share_id))
        facts = {f"consumed {name}": str(amount) for name, amount in result.consumed_capacity.items()}
        if status is not None:
            facts |= {f"condition {each.type}": f"{each.status} {each.message}" for each in status.conditions}
            facts |= dict(_flatten(status.data or {}))
        else:
            yield element("p", "Its driver has not reported it, or does not report what it prepares.")
        yield _show_facts(facts)
        published = dict(_list_device_facts(_find_device(view, result.id)))
        yield element("details", element("summary", "What is published of the device"), _show_facts(published))


def _show_facts(facts: Mapping[str, str]) -> Html:
    rows = [(element("dt", name), element("dd", value)) for name, value in facts.items()]
    return element("dl", rows) if rows else NOTHING


def _find_device(view: SnapshotView, id_: DeviceId) -> Device | None:
    slices = view.cluster.slices.newest_of_pool(PoolId(id_.driver, id_.pool))
    return next((each for one in slices for each in one.spec.devices if each.name == id_.device), None)


def _list_device_facts(device: Device | None) -> Iterator[tuple[str, str]]:
    if device is None:
        yield "published", "no: the device is in no slice any more"
        return
    yield from ((f"capacity {name}", str(each.value)) for name, each in device.capacity.items())
    yield from ((name, _write_value(each.value)) for name, each in device.attributes.items())


def _write_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(_write_value, value)) if isinstance(value, tuple | list) else str(value)


def _flatten(data: JsonObject, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a driver's report, of objects in it with the path."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flatten(dict(value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _write_value(value)


def _show_cards(view: SnapshotView, parts: PartBuilder, claims: Sequence[ResourceClaim], report: WhyReport) -> Html:
    """Return the cards of which ``claims`` have something, and those that are in the way of them."""
    own = view.find_pictures_of(claims)
    shown = _show_figures(view, parts, own, "Where it is", frozenset(str(each.ref) for each in claims))
    blocked = {(each.pool, each.card) for group in report.groups for each in group.in_the_way}
    pools = [parse_pool(pool) for pool, _ in sorted(blocked)]
    pictures = [
        each
        for each in view.cluster.build_pictures(pools)
        if (f"{each.driver}/{each.pool}", each.name) in blocked and each not in own
    ]
    victims = frozenset(victim.claim for remedy in report.remedies[:1] for victim in remedy.claims)
    pictures.sort(key=lambda each: victims.isdisjoint(each.holders))
    in_the_way = _show_figures(view, parts, pictures, "Cards in the way", victims)
    return element("section", shown, in_the_way, show_legend()) if shown or in_the_way else NOTHING


def _show_figures(
    view: SnapshotView, parts: PartBuilder, pictures: Sequence[CardPicture], title: str, marked: frozenset[str]
) -> Html:
    """Return cards below a heading, in which the claims ``marked`` stand out."""
    if not pictures:
        return NOTHING
    style = CardStyle(view=view, colors=view.colors, has_nodes=True, marked=marked)
    cards = [style.show(parts, each) for each in pictures[:_CARDS]]
    more = len(pictures) - _CARDS
    note = element("p", f"and {more} more cards") if more > 0 else NOTHING
    return join((element("h2", title), element("div", cards, class_="cards"), note))
