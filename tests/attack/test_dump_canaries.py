"""What ``kerf gather`` gives away: every field of every object has a text of its own, and a dump keeps what it says.

``NAMES`` are fields in which the API server allows names and words of its own only. In all others users and drivers
write what they like: ``TEXTS`` are those that a dump keeps, and docs/diagnostics.md tells them.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from api.model.metadata import Condition
from api.model.quantity import Quantity
from driver.diagnostics.cluster_state import ClusterState
from driver.diagnostics.dump import POD_TEMPLATE_HASH, encode_dump, redact

_NAMES: Final = """
    allocationMode allocationTimestamp apiGroup apiVersion attributes{} bindingConditions bindingFailureConditions
    bootID capacity{} className compatibilityGroups consumedCapacity{} containerName controller counterSet counters{}
    creationTimestamp declaredFeatures deletionTimestamp device deviceClassName distinctAttribute driver driverName
    drivers effect extendedResourceName finalizers firstTimestamp forbiddenLists{} function gatheredAt key kind
    kubeletVersion kubernetes lastTimestamp limits{} matchAttribute model name namespace node nodeName operator
    parameters{} partitionTypeAttribute pciBusId pcieRoot phase pool potentialNodes profile renewedAt request
    requestName requests requests{} resource resourceClaimName resourceClaimTemplateName resourceName schedulerName
    selectedNode shareID shareable skipNodeOperations timeAdded type uid unit unreadable{} unsuitableNodes unsupported
    uuid
"""
NAMES: Final = frozenset(_NAMES.split())
TEXTS: Final = (
    "nodes.metadata.labels*",
    "pods.metadata.labels[[]hash]",
    "*.expression",
    "*.tolerations.value",
    "*.taints.value",
    "deviceTaintRules.spec.taint.value",
    "pods.spec.nodeSelector*",
    "*.nodeSelectorTerms.*.values",
    "resourceSlices.spec.devices.attributes.*",
    "classic.inventories.spec.*.attributes.value.*",
    "classic.inventories.spec.cards.driverVersion",
    "classic.parameters.spec*",
    "classic.claims.status.allocation.unreadable",
    "events.message",
    "events.reason",
    "nodes.status.conditions[[]Ready].reason",
    "pods.status.conditions[[]PodScheduled].message",
    "pods.status.conditions[[]PodScheduled].reason",
    "pods.status.conditions[[]PodReadyToStartContainers].reason",
    "pods.status.*ontainerStatuses.state.waiting.reason",
    "resourceClaims.status.devices.conditions[[]*].reason",
    "resourceClasses.status.conditions[[]*].*",
    "forbiddenLists",
    "unreadable",
)
CONDITIONS: Final = ("Other", "PodScheduled", "PodReadyToStartContainers", "Ready")


def fill(info: msgspec.inspect.Type, path: str) -> Any:
    """Return a value of a type whose texts are the path of their field; keys of mappings end in ``{}``."""
    match info:
        case msgspec.inspect.StructType():
            return info.cls(**{each.name: fill(each.type, f"{path}.{each.encode_name}") for each in info.fields})
        case msgspec.inspect.UnionType():
            return fill(next(each for each in info.types if not isinstance(each, msgspec.inspect.NoneType)), path)
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StructType(cls=cls)) if cls is Condition:
            return tuple(
                Condition(
                    type=type_, status="True", reason=f"<{path}[{type_}].reason>", message=f"<{path}[{type_}].message>"
                )
                for type_ in CONDITIONS
            )
        case msgspec.inspect.VarTupleType():
            return (fill(info.item_type, path),)
        case msgspec.inspect.DictType(value_type=msgspec.inspect.AnyType()):
            return {f"<{path}{{}}>": f"<{path}>"}
        case msgspec.inspect.DictType():
            own = {f"<{path}{{}}>": fill(info.value_type, path)}
            return own | {POD_TEMPLATE_HASH: f"<{path}[hash]>"} if path.endswith(".labels") else own
        case msgspec.inspect.LiteralType():
            return info.values[0]
        case msgspec.inspect.CustomType(cls=cls) if cls is Quantity:
            return Quantity(1)
    return {msgspec.inspect.StrType: f"<{path}>", msgspec.inspect.IntType: 1, msgspec.inspect.BoolType: True}[
        type(info)
    ]


def find(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from find(key)
            yield from find(each)
    elif isinstance(value, list):
        for each in value:
            yield from find(each)
    elif isinstance(value, str) and value.startswith("<"):
        yield value


def kept_texts() -> set[str]:
    full = fill(msgspec.inspect.type_info(ClusterState), "")
    document = msgspec.json.decode(encode_dump(redact(full)))
    paths = {text.strip("<>").removeprefix(".") for text in find(document)}
    return {path for path in paths if path.rpartition(".")[2] not in NAMES}


def test_a_dump_keeps_no_text_of_users_or_drivers_but_those_that_are_told() -> None:
    untold = [path for path in sorted(kept_texts()) if not any(fnmatchcase(path, each) for each in TEXTS)]
    assert untold == []


def test_every_text_that_is_told_is_in_a_dump() -> None:
    kept = kept_texts()
    assert [each for each in TEXTS if not any(fnmatchcase(path, each) for path in kept)] == []
