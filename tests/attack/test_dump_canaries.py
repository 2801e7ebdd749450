"""What ``kerf gather`` gives away: every field of every object has a text of its own, and a dump keeps what it says.

With ``--anonymize`` that is nothing but ``PUBLIC``.

``NAMES`` are fields in which the API server allows names and words of its own only. In all others users and drivers
write what they like: ``TEXTS`` are those that a dump keeps, and docs/diagnostics.md tells them.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final

import msgspec
import pytest

from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.anonymization import anonymize
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import POD_TEMPLATE_HASH, decode_dump, encode_dump, redact

_NAMES: Final = """
    allocationMode allocationTimestamp apiGroup apiVersion attributes{} bindingConditions bindingFailureConditions
    bootID capacity{} className compatibilityGroups consumedCapacity{} containerName controller counterSet counters{}
    creationTimestamp declaredFeatures deletionTimestamp device deviceClassName distinctAttribute driver driverName
    drivers effect extendedResourceName finalizers firstTimestamp forbiddenLists{} function gatheredAt key kind
    kubeletVersion kubernetes lastTimestamp layout limits{} matchAttribute model name namespace node nodeName operator
    overhead{} parameters{} partitionTypeAttribute pciBusId pcieRoot phase pool potentialNodes profile renewedAt request
    requestName requests requests{} resource resourceClaimName resourceClaimTemplateName resourceName restartPolicy
    schedulerName selectedNode shareID shareable skipNodeOperations timeAdded type uid unit unreadable{} unsuitableNodes
    unsupported uuid
"""
NAMES: Final = frozenset(_NAMES.split())
TEXTS: Final = (
    "nodes.metadata.labels*",
    "nodes.status.allocatable{}",
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
    "cardMaintenances.card",
    "cardMaintenances.reason",
    "cardMaintenances.since",
    "cardMaintenances.then",
    "events.reason",
    "nodes.status.conditions[[]Ready].reason",
    "pods.status.conditions[[]PodScheduled].message",
    "pods.status.conditions[[]PodScheduled].reason",
    "pods.status.conditions[[]PodReadyToStartContainers].reason",
    "pods.status.*ontainerStatuses.*tate.waiting.reason",
    "pods.status.*ontainerStatuses.*tate.terminated.reason",
    "pods.status.*ontainerStatuses.allocatedResourcesStatus.*",
    "resourceClaims.status.devices.conditions[[]*].reason",
    "resourceClasses.status.conditions[[]*].*",
    "offeredResources.allocatable{}",
    "offeredResources.refusal",
    "discoveryConfigurations.allocatable{}",
    "discoveredDevices.*",
    "forbiddenLists",
    "unreadable",
)
PUBLIC: Final = (
    "*.driver",
    "*.driverName",
    "*.attributes{}",
    "*.capacity{}",
    "classic.inventories.spec.*.attributes.name",
    "classic.inventories.spec.*.capacity.name",
    "classic.inventories.spec.*.quota.name",
)
"""The fields whose words an anonymized dump keeps, wherever else they are."""
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
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
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


def spell(path: str) -> str:
    """Return a word for the text ``path`` that is in no vocabulary: its digest in letters."""
    return "".join(chr(ord("a") + nibble) for byte in sha256(path.encode()).digest()[:8] for nibble in divmod(byte, 16))


def with_canaries(value: Any, shape: str, canaries: dict[str, str]) -> Any:
    """Return ``value``, which ``fill`` has made, with a canary of the form ``shape`` in each of its texts."""
    match value:
        case str() if value.startswith("<"):
            path = value.strip("<>").removeprefix(".")
            canaries[spell(path)] = path
            return shape.replace("{}", spell(path))
        case dict():
            return {
                with_canaries(key, shape, canaries): with_canaries(each, shape, canaries) for key, each in value.items()
            }
        case list():
            return [with_canaries(each, shape, canaries) for each in value]
        case _:
            return value


@pytest.mark.parametrize("shape", ["{}", "acme-{}", "{}.example/{}", "said {}: /var/{}@10.1.2.3", "\"{}\" == '{}\\n'"])
def test_an_anonymized_dump_keeps_no_word_but_those_that_are_told(shape: str) -> None:
    document = msgspec.json.decode(encode_dump(redact(fill(msgspec.inspect.type_info(ClusterState), ""))))
    canaries: dict[str, str] = {}
    state = decode_dump(msgspec.json.encode(with_canaries(document, shape, canaries)), "dump.json")
    assert len(canaries) > 250
    text = encode_dump(anonymize(state)[0]).decode().lower()
    left = {path for word, path in canaries.items() if word in text}
    assert [path for path in sorted(left) if not any(fnmatchcase(path, each) for each in PUBLIC)] == []
    if shape == "{}":
        assert [each for each in PUBLIC if not any(fnmatchcase(path, each) for path in left)] == []
