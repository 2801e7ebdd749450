"""What kubectl 1.32.4 was seen to send for its ``create`` commands, and objects that are converted there and back."""

from typing import Any

import pytest
from google.protobuf.message import Message

from kerf_dra.api.errors import InvalidDocumentError, UnsupportedError
from kerf_dra.driver.local.apiserver.kinds.served_kinds import builtin_types
from kerf_dra.driver.local.apiserver.meta.protobuf import decode, encode, encode_event
from kerf_dra.driver.local.apiserver.meta.protobuf_messages import find_kind, message_types
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings

MAGIC = b"k8s\x00"
RECORDED = [
    pytest.param(
        "6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a016d12001a0022002a0032003800420012060a01611201621a002200",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}},
        id="create configmap m --from-literal a=b",
    ),
    pytest.param(
        "6b3873000a0f0a02763112094e616d65737061636512190a110a017412001a0022002a0032003800420012001a020a001a002200",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}},
        id="create namespace t",
    ),
    pytest.param(
        "6b3873000a2b0a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631120b526f6c6542696e64696e67125a0a120a"
        "02726212001a0022002a00320038004200121e0a0e536572766963654163636f756e7412001a0173220764656661756c741a240a1972"
        "6261632e617574686f72697a6174696f6e2e6b38732e696f1204526f6c651a01721a002200",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "rb"},
            "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        },
        id="create rolebinding rb --role=r --serviceaccount=default:s",
    ),
]


def message(type_: str, /, **fields: Any) -> Message:
    return message_types()[type_].make(**fields)


def wrapped(kind: str, content: Message, api_version: str = "v1") -> bytes:
    """A body as client-go makes it."""
    type_meta = message("TypeMeta", apiVersion=api_version, kind=kind)
    return MAGIC + message("Unknown", typeMeta=type_meta, raw=content.SerializeToString()).SerializeToString()


@pytest.mark.parametrize(("body", "expected"), RECORDED)
def test_what_kubectl_sends_is_read(body: str, expected: object) -> None:
    assert decode(bytes.fromhex(body)) == expected


def test_a_zero_that_was_set_is_kept_where_go_can_tell_it_from_none() -> None:
    options = message("meta.v1.DeleteOptions", gracePeriodSeconds=0, orphanDependents=False, dryRun=["All"])
    assert decode(wrapped("DeleteOptions", options, "resource.k8s.io/v1")) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "orphanDependents": False,
        "dryRun": ["All"],
    }


SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {
        "name": "n1-gpu",
        "labels": {"a": "1", "b": ""},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}],
        "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:driver": {}}}}],
    },
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 0, "resourceSliceCount": 2},
        "sharedCounters": [{"name": "card-0", "counters": {"memory": {"value": "80Gi"}}}],
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"index": {"int": 0}, "ecc": {"bool": False}, "model": {"string": ""}},
                "capacity": {"memory": {"value": "40Gi"}},
                "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}],
            },
            {"name": "gpu-1", "allowMultipleAllocations": False, "bindingConditions": ["a", "b"]},
        ],
    },
}
OBJECTS: list[dict[str, Any]] = [
    SLICE,
    {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "d"},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "deviceClassName": "gpu", "count": 2}],
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"kind": "X", "n": 0.5}}}],
            }
        },
        "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "livenessProbe": {"httpGet": {"port": 80, "path": "/"}, "periodSeconds": 3},
                    "readinessProbe": {"tcpSocket": {"port": "http"}},
                    "resources": {"limits": {"cpu": "500m"}, "claims": [{"name": "gpu"}]},
                    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}],
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Node", "name": "n1"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
    },
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AP8=", "empty": ""}},
]


@pytest.mark.parametrize("document", OBJECTS, ids=[document["kind"] for document in OBJECTS])
def test_an_object_is_the_same_there_and_back(document: dict[str, Any]) -> None:
    assert decode(encode(document)) == document


def test_a_frame_of_a_watch_is_an_event_behind_its_length_whose_object_has_the_envelope() -> None:
    frame = encode_event("ADDED", SLICE)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    event: Any = message_types()["meta.v1.WatchEvent"].make.FromString(frame[4:])
    assert (event.type, decode(event.object.raw)) == ("ADDED", SLICE)


def test_each_built_in_kind_but_definitions_of_kinds_has_messages_in_each_version() -> None:
    lacking = {
        type_.kind
        for type_ in builtin_types(ApiServerSettings())
        for version in type_.versions
        for kind in (type_.kind, type_.list_kind)
        if find_kind(type_.api_version(version), kind) is None
    }
    assert lacking == {"CustomResourceDefinition"}


@pytest.mark.parametrize("api_version", ["v1", "example.com/v1"])
def test_a_kind_that_has_no_message_is_refused_by_name(api_version: str) -> None:
    with pytest.raises(UnsupportedError, match=f"kind 'Gadget' in '{api_version}' are not read from protobuf"):
        decode(wrapped("Gadget", message("meta.v1.ObjectMeta", name="p"), api_version))


NAMED_IN_NO_TEXT = wrapped("Namespace", message("core.v1.Namespace")).replace(b"Namespace", b"Namespac\xff")
FOREVER = message("meta.v1.ObjectMeta", name="m", creationTimestamp=message("Time", seconds=2**62))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s",
        MAGIC + b"\xff",
        bytes.fromhex(RECORDED[0].values[0])[:-9],  # type: ignore[arg-type]
        NAMED_IN_NO_TEXT,
        wrapped("ConfigMap", message("core.v1.ConfigMap", metadata=FOREVER)),
        wrapped("ResourceClaim", message("core.v1.Pod", spec=message("core.v1.PodSpec", nodeName="n" * 200))),
    ],
    ids=["empty", "JSON", "no magic", "no field", "cut", "no text", "a time past the year 9999", "another kind"],
)
def test_other_bytes_are_an_invalid_document(body: bytes) -> None:
    with pytest.raises((InvalidDocumentError, UnsupportedError)):
        decode(body)
