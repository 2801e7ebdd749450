"""Which page an address shows, made of one snapshot. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, PartialState
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.arrival_pages import show_arrived_nodes, show_being_read
from kerf_dra.driver.view.html.claim_pages import show_claim, show_claims, show_pod
from kerf_dra.driver.view.html.class_pages import show_class, show_classes
from kerf_dra.driver.view.html.cluster_pages import show_card, show_cluster, show_node
from kerf_dra.driver.view.html.elements import element
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.html.what_if_pages import MOST_REPEATED, show_what_if
from kerf_dra.driver.view.snapshot_view import ColorBy, SnapshotView
from kerf_dra.driver.view.what_if import WhatIf, ask_what_if

Query: TypeAlias = Mapping[str, str]
_MOST_FIELDS: Final = 16
"""Fields of a query; more than any page has."""
_LONGEST_NUMBER: Final = 6
"""Digits of the number of a page."""
_NAMESPACE: Final = "default"
"""The namespace of manifests without one, as kubectl's."""


@dataclass(frozen=True, slots=True)
class Target:
    """What an address names."""

    path: str
    query: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, address: str) -> "Target | None":
        """Return the target of a path with a query; None: it is no page of this server."""
        try:
            parts = urlsplit(address)
            fields = parse_qsl(parts.query, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return None
        return cls(parts.path, tuple(fields)) if parts.path in _PAGES and not parts.netloc else None


def show_target(view: SnapshotView, target: Target) -> Page:
    """Return the page of a target; one with status 404 where the cluster has no such object."""
    query = dict(target.query)
    return _PAGES[target.path](view, query) or _show_absence(target.path, query)


def show_arrived(arrived: PartialState, target: Target) -> Page:
    """Return the page of a target while the cluster is read for the first time: of the cluster, what has arrived."""
    if target.path != addresses.CLUSTER:
        return show_being_read(arrived, target.path)
    query = dict(target.query)
    return show_arrived_nodes(arrived, text=query.get("text", ""), number=_read_number(query.get("page", "")))


def answer_form(view: SnapshotView, form: Query) -> Page:
    """Return the page with the answer to a manifest."""
    text, namespace, copies = _read_form(form)
    answer = ask_what_if(view.cluster, text, namespace=namespace, copies=copies)
    return show_what_if(view, text=text, namespace=namespace, copies=copies, answer=answer)


def refuse_form(form: Query) -> Page:
    """Return the page with a manifest that gets no answer yet, because the cluster is read for the first time."""
    text, namespace, copies = _read_form(form)
    answer = WhatIf(problems=("the cluster is still being read: ask again when it has been",))
    nothing = SnapshotView(ClusterIndex(ClusterState()))
    return show_what_if(nothing, text=text, namespace=namespace, copies=copies, answer=answer)


def _read_form(form: Query) -> tuple[str, str, int]:
    """Return a form's manifest, namespace and copies."""
    text = form.get("manifest", "").replace("\r\n", "\n")  # browsers send lines so (HTML, 4.10.22.4)
    copies = min(max(1, _read_number(form.get("copies", ""))), MOST_REPEATED)
    return text, form.get("namespace", "") or _NAMESPACE, copies


def _show_absence(path: str, query: Query) -> Page:
    name = "/".join(value for value in query.values() if value)
    text = f"There is no {path.strip('/')} {name}; it may have ended since."
    return build_page("Not there", path, PartBuilder(), element("p", text), status=404)


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else 1


def _read_ref(query: Query) -> ObjectRef:
    return ObjectRef(query.get("namespace", ""), query.get("name", ""))


def _show_cluster(view: SnapshotView, query: Query) -> Page:
    color = query.get("color", "")
    return show_cluster(
        view,
        color=ColorBy(color) if color in [*ColorBy] else ColorBy.CLAIM,
        text=query.get("text", ""),
        number=_read_number(query.get("page", "")),
    )


_PAGES: Final[Mapping[str, Callable[[SnapshotView, Query], Page | None]]] = MappingProxyType(
    {
        addresses.CLUSTER: _show_cluster,
        addresses.NODE: lambda view, query: show_node(view, query.get("name", "")),
        addresses.CARD: lambda view, query: show_card(
            view, (query.get("driver", ""), query.get("pool", "")), query.get("card", "")
        ),
        addresses.CLAIMS: lambda view, query: show_claims(
            view, text=query.get("text", ""), number=_read_number(query.get("page", ""))
        ),
        addresses.CLAIM: lambda view, query: show_claim(view, _read_ref(query)),
        addresses.POD: lambda view, query: show_pod(view, _read_ref(query)),
        addresses.CLASSES: lambda view, _query: show_classes(view),
        addresses.CLASS: lambda view, query: show_class(view, query.get("name", "")),
        addresses.WHAT_IF: lambda view, _query: show_what_if(
            view, text="", namespace=_NAMESPACE, copies=1, answer=None
        ),
    }
)
