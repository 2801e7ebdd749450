"""What the controller's caches keep of objects: all that is read, and equal texts once."""

import json
from typing import Any

import pytest

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES
from kerf_dra.api.resource import v1
from kerf_dra.api.resource.v1alpha3 import KINDS
from kerf_dra.driver.controller.projections import (
    COMPACT_DEVICES,
    COMPACT_INVENTORIES,
    LABELED_NODES,
    drop_annotations,
    share_context_nodes,
    share_selected_nodes,
)
from tests.controller.classic.hardware import gpu, inventory


def encode(**document: Any) -> bytes:
    return json.dumps(document).encode()


def test_of_nodes_the_labels_are_kept() -> None:
    documents = [
        encode(
            metadata={
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": "7",
                "labels": {"zone.example.com": "zone-a"},
                "annotations": {"long": "text"},
            },
            status={"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.37.0"}},
        )
        for name in ("n1", "n2")
    ]
    kept = [LABELED_NODES.decode(document) for document in documents]
    for one, whole in zip(kept, map(NODES.decode, documents), strict=True):
        assert (one.ref, one.metadata.uid, one.metadata.version) == (whole.ref, whole.metadata.uid, 7)
        assert (one.metadata.labels, one.metadata.annotations) == (whole.metadata.labels, {})
        assert (one.spec, one.status.conditions) == (whole.spec, ())
    [first], [second] = (one.metadata.labels.values() for one in kept)
    assert first is second


def test_geometries_of_equal_nodes_are_stored_once() -> None:
    told = [inventory(node, gpu(node, 0), gpu(node, 1)) for node in ("n1", "n2")]
    kept = [COMPACT_INVENTORIES.decode(json.dumps(NODE_INVENTORIES.encode(one)).encode()) for one in told]
    assert kept == told
    assert kept[0].spec.geometries[0] is kept[1].spec.geometries[0]


def test_node_names_of_scheduling_contexts_are_stored_once() -> None:
    status = {"resourceClaims": [{"name": "a", "unsuitableNodes": ["n1", "n2"]}, {"name": "b"}]}
    document = encode(metadata={"name": "p", "namespace": "d"}, spec={"potentialNodes": ["n1", "n2"]}, status=status)
    whole = KINDS.scheduling_contexts.decode(document)
    kept = share_context_nodes(whole)
    assert kept == whole
    unsuitable = kept.status.resource_claims[0].unsuitable_nodes
    assert [one is two for one, two in zip(kept.spec.potential_nodes, unsuitable, strict=True)] == [True, True]


def test_claims_lose_labels_and_annotations_and_nothing_else() -> None:
    metadata = {"name": "c", "namespace": "d", "uid": "u", "finalizers": ["f"], "resourceVersion": "3"}
    spec = {"controller": "gpu.kerf.dev", "devices": {"requests": [{"name": "r", "deviceClassName": "small"}]}}
    long = {"labels": {"a": "b"}, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}
    whole = KINDS.claims.decode(encode(metadata={**metadata, **long}, spec=spec))
    assert drop_annotations(whole) == KINDS.claims.decode(encode(metadata=metadata, spec=spec))


def test_node_names_of_slices_for_several_nodes_are_stored_once() -> None:
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = [{"matchExpressions": [hostname], "matchFields": [name]}, {"matchExpressions": [hostname]}]
    spec = {
        "driver": "shared.kerf.dev",
        "pool": {"name": "cameras-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "cameras-1"}],
    }
    for selector in ({"nodeSelector": {"nodeSelectorTerms": terms}}, {"nodeName": "n1"}):
        whole = v1.KINDS.resource_slices.decode(encode(metadata={"name": "s"}, spec={**spec, **selector}))
        kept = share_selected_nodes(whole)
        assert kept == whole
        requirements = [
            requirement
            for term in (kept.spec.node_selector.node_selector_terms if kept.spec.node_selector else ())
            for requirement in (*term.match_expressions, *term.match_fields)
        ]
        assert len({id(value) for each in requirements for value in each.values}) <= 2


@pytest.mark.parametrize("nodes", [["n1", "n2"], [], None, "n1", [1, "n1"], {"n1": 1}])
def test_a_discovered_device_is_kept_as_it_is_written_valid_or_not(nodes: object) -> None:
    metadata = {"name": "cameras-1", "resourceVersion": "3"}
    kept = [COMPACT_DEVICES.decode(encode(metadata=metadata, spec={"nodes": nodes, "x": 1})) for _ in range(2)]
    assert [one.spec for one in kept] == [{"nodes": nodes, "x": 1}] * 2
    if nodes == ["n1", "n2"]:
        assert kept[0].spec["nodes"][1] is kept[1].spec["nodes"][1]
