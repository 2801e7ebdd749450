"""What kubectl 1.32.4 was seen to send for its ``create`` commands, and bodies made from the same messages."""

import pytest
from google.protobuf.message import Message

from kerf_dra.api.errors import InvalidDocumentError, UnsupportedError
from kerf_dra.driver.local.apiserver._generated.kubernetes_objects import api_pb2
from kerf_dra.driver.local.apiserver.meta.protobuf import decode

MAGIC = b"k8s\x00"
RECORDED = [
    pytest.param(
        "6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a016d12001a0022002a0032003800420012060a01611201621a002200",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "generation": 0}, "data": {"a": "b"}},
        id="create configmap m --from-literal a=b",
    ),
    pytest.param(
        "6b3873000a0f0a02763112094e616d65737061636512190a110a017412001a0022002a0032003800420012001a020a001a002200",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t", "generation": 0}},
        id="create namespace t",
    ),
    pytest.param(
        "6b3873000a2b0a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631120b526f6c6542696e64696e67125a0a120a"
        "02726212001a0022002a00320038004200121e0a0e536572766963654163636f756e7412001a0173220764656661756c741a240a1972"
        "6261632e617574686f72697a6174696f6e2e6b38732e696f1204526f6c651a01721a002200",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "rb", "generation": 0},
            "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        },
        id="create rolebinding rb --role=r --serviceaccount=default:s",
    ),
]


def wrapped(kind: str, content: Message) -> bytes:
    """A body as client-go makes it."""
    wrapper = api_pb2.Unknown(type_meta=api_pb2.TypeMeta(api_version="v1", kind=kind), raw=content.SerializeToString())
    return MAGIC + wrapper.SerializeToString()


@pytest.mark.parametrize(("body", "expected"), RECORDED)
def test_what_kubectl_sends_is_read(body: str, expected: object) -> None:
    assert decode(bytes.fromhex(body)) == expected


def test_a_zero_that_was_set_is_kept() -> None:
    options = api_pb2.DeleteOptions(grace_period_seconds=0, orphan_dependents=False, dry_run=["All"])
    assert decode(wrapped("DeleteOptions", options)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "orphanDependents": False,
        "dryRun": ["All"],
    }


def test_bytes_are_base64_and_times_are_rfc_3339() -> None:
    metadata = api_pb2.ObjectMeta(name="m", deletion_timestamp=api_pb2.Time(seconds=1_000_000_000))
    read = decode(wrapped("ConfigMap", api_pb2.ConfigMap(metadata=metadata, binary_data={"k": b"\x00\xff"})))
    assert read["binaryData"] == {"k": "AP8="}
    assert read["metadata"] == {"name": "m", "deletionTimestamp": "2001-09-09T01:46:40Z"}


def test_json_names_are_those_of_go() -> None:
    rules = [api_pb2.PolicyRule(verbs=["get"], non_resource_urls=["/metrics"])]
    read = decode(wrapped("ClusterRole", api_pb2.ClusterRole(rules=rules)))
    assert read["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]


def test_a_kind_that_is_not_carried_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="objects of kind 'Pod' are not read from protobuf; send them as JSON"):
        decode(wrapped("Pod", api_pb2.ObjectMeta(name="p")))


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s", MAGIC + b"\xff", bytes.fromhex(RECORDED[0].values[0])[:-9]])  # type: ignore[arg-type]
def test_other_bytes_are_an_invalid_document(body: bytes) -> None:
    with pytest.raises(InvalidDocumentError):
        decode(body)
