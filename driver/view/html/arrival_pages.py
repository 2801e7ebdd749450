"""The pages while the cluster is read for the first time: what has arrived, and that nothing else is known yet.

Until all claims and slices have arrived, a card that is in use looks free. So cards are named, and none is drawn.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.diagnostics.cluster_state import PartialState
from kerf_dra.driver.partitions.card_pictures.picture_builder import build_card_pictures
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.cluster_pages import show_pager
from kerf_dra.driver.view.html.elements import Html, element
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.snapshot_view import NODES_OF_A_PAGE, cut_page

_Pools: TypeAlias = Mapping[PoolId, Sequence[CompactSlice]]


def describe_arrived(arrived: PartialState) -> str:
    """Return how much has arrived.

    >>> describe_arrived(PartialState(nodes=500))
    'Reading the cluster: 500 nodes, 0 slices so far'
    """
    slices = len(arrived.slices)
    return (
        f"Reading the cluster: {arrived.nodes} node{'' if arrived.nodes == 1 else 's'}, "
        f"{slices} slice{'' if slices == 1 else 's'} so far"
    )


def show_arrived_nodes(arrived: PartialState, *, text: str, number: int) -> Page:
    """Return the cluster's page ``number``: the nodes of which slices have arrived, with ``text`` in their names."""
    nodes = _group_by_node(arrived)
    listed = cut_page(sorted(name for name in nodes if text in name), number, NODES_OF_A_PAGE)
    parts = PartBuilder()
    return build_page(
        "Cluster",
        addresses.CLUSTER,
        parts,
        parts.add("p", "summary", f"{describe_arrived(arrived)}."),
        element("p", "Who has which part, what is free and why pods wait is shown when all has been read."),
        [_show_node(name, nodes[name]) for name in listed.names],
        show_pager(listed, addresses.CLUSTER, "nodes", text=text),
    )


def show_being_read(arrived: PartialState, path: str) -> Page:
    """Return what stands for a page at ``path`` that needs the whole cluster."""
    parts = PartBuilder()
    return build_page(
        "The cluster is still being read",
        path,
        parts,
        parts.add("p", "summary", f"{describe_arrived(arrived)}."),
        element("p", "This page needs the whole cluster, and is shown when all has been read."),
    )


def _group_by_node(arrived: PartialState) -> Mapping[str, _Pools]:
    """Return the slices by node and pool, without those of no single node."""
    found: dict[str, dict[PoolId, list[CompactSlice]]] = defaultdict(lambda: defaultdict(list))
    for each in arrived.slices:
        if each.published.node_name:
            found[each.published.node_name][each.pool_id].append(each)
    return found


def _show_node(name: str, pools: _Pools) -> Html:
    cards = [*_list_cards(pools)] or [element("li", "some of its slices have arrived")]
    return element("section", element("h2", name), element("ul", cards, class_="strips"), class_="node row")


def _list_cards(pools: _Pools) -> Iterator[Html]:
    """Yield the cards of the pools of which all slices have arrived."""
    for pool in sorted(pools):
        newest = max(each.pool.generation for each in pools[pool])
        slices = [each for each in pools[pool] if each.pool.generation == newest]
        if len(slices) < slices[0].pool.resource_slice_count:
            continue
        for picture in build_card_pictures([each.restore() for each in slices], {}):
            yield element("li", picture.title, " ", element("small", picture.model))
