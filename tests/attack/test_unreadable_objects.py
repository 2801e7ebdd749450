"""Free-form fields that no decoder of ours takes: 5,000 levels, half a surrogate pair, bytes that are no UTF-8.

The API server keeps the text of opaque parameters as it is, so any user may write them.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS
from kerf_dra.api.kerf.decoder import (
    decode_device_config,
    decode_parameters,
    decode_parameters_object,
    decode_resource_class_object,
)
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES
from kerf_dra.api.model.json_limits import CUT, MAX_LEVELS, check_levels, make_readable
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource import v1alpha2, v1alpha3
from kerf_dra.api.resource.registry import choose_kinds
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.cli import main
from kerf_dra.driver.demo.manifests import BadManifestsError, load_manifests
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.collector import collect_state
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump, redact
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import NotFoundError, UnexpectedAnswerError, build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.watch_decoder import decode_event, decode_object, decode_page
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.registry.patch import decode_document
from kerf_dra.driver.runtime import metrics
from tests.attack.raw_server import DEEP, RawServer, claim, event, ref
from tests.controller.classic.cluster_builder import ClusterBuilder
from tests.runtime.virtual_time import VIRTUAL_TIME

CLAIMS = KINDS.resource_claims
PATH = "/apis/resource.k8s.io/v1/resourceclaims"
HOSTILE = {
    "5000 levels of lists": b'{"a":' + DEEP + b"}",
    "2000 levels of objects": b'{"a":' * 2000 + b"1" + b"}" * 2000,
    "levels between others": b'{"a":[1,{"b":[' * 900 + b"]}]}" * 900,
    "half a surrogate pair": rb'{"a":"\ud800"}',
    "half a surrogate pair as a key": rb'{"\udc00":1}',
    "no UTF-8": b'{"a":"\xff\xfe"}',
}
hostile = pytest.mark.parametrize("parameters", HOSTILE.values(), ids=list(HOSTILE))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
async def server() -> RawServer:
    return RawServer()


@pytest.fixture
async def client(server: RawServer) -> AsyncGenerator[Client, None]:
    async with server.client() as client:
        yield client


@hostile
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_claim_with_such_parameters_still_says_which_devices_it_holds(parameters: bytes, version: str) -> None:
    kind = choose_kinds([version]).resource_claims
    held = decode_object(kind, claim("evil", parameters=parameters, device="gpu-0-whole")).value.status.allocation
    assert held is not None
    assert [result.device for result in held.devices.results] == ["gpu-0-whole"]


@hostile
async def test_a_list_with_such_a_claim_has_all_claims(server: RawServer, client: Client, parameters: bytes) -> None:
    server.objects[PATH] = [claim("one"), claim("evil", parameters=parameters), claim("two")]
    listed = await client.list_all(CLAIMS)
    assert [value.metadata.name for value in listed.items] == ["one", "evil", "two"]
    assert not listed.unreadable


@hostile
async def test_a_watch_goes_on_after_such_a_claim(server: RawServer, client: Client, parameters: bytes) -> None:
    server.objects[PATH] = [claim("evil", parameters=parameters)]
    server.events = [
        event("MODIFIED", claim("evil", parameters=parameters, device="d", version=2)),
        event("ADDED", claim("next", version=3)),
    ]
    informer = Informer(client, CLAIMS)
    async with anyio.create_task_group() as group:
        group.start_soon(informer.run)
        await informer.wait_synced()
        await anyio.sleep(1)
        assert {name.name for name in informer.store.refs()} == {"evil", "next"}
        assert informer.unknown == []
        group.cancel_scope.cancel()


async def test_what_was_cut_off_is_logged_once_with_its_name_and_counted(
    server: RawServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def counted() -> float:
        labels = {"resource": "resourceclaims", "extent": "part"}
        return metrics.REGISTRY.get_sample_value("kerf_unreadable_objects_total", labels) or 0

    before = counted()
    server.objects[PATH] = [claim("one"), claim("evil", parameters=HOSTILE["5000 levels of lists"])]
    for _ in range(3):
        await client.list_all(CLAIMS)
        await client.get(CLAIMS, "evil", "team-a")
    (message,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert message.startswith("ResourceClaim team-a/evil: cannot read a ResourceClaim of resource.k8s.io/v1: what is ")
    assert message.endswith("nested more than 100 levels deep is cut off; the rest of it counts")
    assert counted() == before + 1


async def test_an_object_of_another_shape_is_an_error_with_its_name(server: RawServer, client: Client) -> None:
    server.objects[PATH] = [claim("odd").replace(b'"requests":[', b'"requests":[3,')]
    with pytest.raises(UnexpectedAnswerError, match="cannot read ResourceClaim team-a/odd of resource"):
        await client.get(CLAIMS, "odd", "team-a")


async def test_an_object_that_was_never_readable_is_known_to_be_unknown_until_it_is_gone(
    server: RawServer, client: Client
) -> None:
    odd = claim("odd", version=2).replace(b'"requests":[', b'"requests":[3,')
    server.objects[PATH] = [odd]
    informer = Informer(client, CLAIMS)
    async with anyio.create_task_group() as group:
        group.start_soon(informer.run)
        await informer.wait_synced()
        assert informer.unknown == [ref("odd")]
        group.cancel_scope.cancel()
    server.events = [event("DELETED", odd)]
    async with anyio.create_task_group() as group:
        group.start_soon(informer.run)
        await anyio.sleep(1)
        assert informer.unknown == []
        group.cancel_scope.cancel()


def test_the_classic_controller_allocates_nothing_while_it_cannot_read_what_a_claim_holds() -> None:
    unknown = [ref("odd")]
    builder = ClusterBuilder(unknown_claims=lambda: unknown)
    builder.node("n1")
    problem = builder.view.problem_of("n1", [GPU.driver])
    assert problem is not None
    assert problem.startswith("1 claims cannot be read")
    assert "team-a" not in problem
    unknown.clear()
    assert builder.view.problem_of("n1", [GPU.driver]) is None


CONTROLLED = b'"spec":{"controller":"kerf.dev",'
ALLOCATED = b'"allocation":{"controller":"kerf.dev",'


def test_a_claim_that_the_classic_controller_allocates_is_read_and_refused_by_the_name_of_its_field() -> None:
    text = claim("evil", parameters=b'{"spec":' + DEEP + b"}", device="gpu-0", driver="kerf.dev")
    text = text.replace(b'"spec":{', CONTROLLED, 1).replace(b'"allocation":{', ALLOCATED)
    value = decode_object(v1alpha3.KINDS.claims, text.replace(b'"exactly":{"deviceClassName":"c"}', b'"x":1')).value
    assert value.status.allocation is not None
    assert [result.device for result in value.status.allocation.devices.results] == ["gpu-0"]
    ((parameters,),) = (request.parameters for request in value.spec.requests)
    with pytest.raises(InvalidDocumentError, match=r"config\.kind"):
        decode_parameters(parameters, "config")


def test_a_resource_handle_like_this_is_unreadable_and_its_claim_is_not() -> None:
    handle = json.dumps(
        {"driverName": "kerf.dev", "data": '{"apiVersion":"kerf.dev/v1alpha1","x":' + DEEP.decode() + "}"}
    )
    text = (
        '{"metadata":{"name":"evil"},"spec":{"resourceClassName":"c"},"status":{"driverName":"kerf.dev",'
        '"allocation":{"resourceHandles":[' + handle + "]}}}"
    )
    allocation = decode_object(v1alpha2.KINDS.claims, text.encode()).value.status.allocation
    assert allocation is not None
    assert list(allocation.unreadable) == ["kerf.dev"]


def test_parameters_for_kerf_are_not_shortened_unnoticed() -> None:
    parameters = b'{"apiVersion":"kerf.dev/v1alpha1","kind":"GpuConfig","x":' + DEEP + b"}"
    decoded = decode_object(CLAIMS, claim("evil", parameters=parameters, device="d")).value
    allocation = decoded.status.allocation
    assert allocation is not None
    opaque = allocation.devices.config[0].opaque
    assert opaque is not None
    assert CUT in json.dumps(opaque.parameters)
    with pytest.raises(InvalidDocumentError, match="unknown field"):
        decode_device_config(opaque.parameters, "status", GPU.configurations)


@pytest.mark.parametrize("depth", [MAX_LEVELS - 1, MAX_LEVELS * 3])
def test_a_value_that_some_decoders_take_has_one_limit_for_all(depth: int) -> None:
    """Python 3.11 decodes some 900 levels, 3.12 thousands: what walks over the value later may not follow."""
    parameters = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    decoded = decode_object(CLAIMS, claim("evil", parameters=parameters))
    assert (decoded.unreadable is None) == (depth < MAX_LEVELS)
    opaque = decoded.value.spec.devices.config[0].opaque
    assert opaque is not None
    check_levels(opaque.parameters)


def test_objects_of_our_own_kinds_name_what_they_cannot_have() -> None:
    value = b'{"metadata":{"name":"evil"},"spec":{"device":' + DEEP + b"}}"
    with pytest.raises(InvalidDocumentError, match="evil"):
        decode_resource_class_object(decode_object(RESOURCE_CLASSES, value).value)
    kind = CLAIM_PARAMETERS[0]
    with pytest.raises(InvalidDocumentError, match="evil"):
        decode_parameters_object(kind.kind, decode_object(kind, value).value)


def test_a_field_that_no_type_knows_hides_nothing() -> None:
    node = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"future":' + DEEP + b"}}"
    assert decode_event(NODES, "GET", event("ADDED", node)).ref == ObjectRef("", "n1")
    page = decode_page(NODES, b'{"metadata":{},"items":[' + node + b"]}")
    assert [value.metadata.name for value in page.items] == ["n1"]


@pytest.mark.parametrize("body", [DEEP, b'{"message":' + DEEP + b"}", b'{"message":"\xff"}'])
def test_an_error_answer_like_this_is_still_the_error_of_its_status(body: bytes) -> None:
    assert isinstance(build_status_error("GET /x", 404, body), NotFoundError)


async def test_discovery_like_this_is_an_error_of_its_path(client: Client) -> None:
    async def call(request: HttpRequest) -> bytes:
        return DEEP

    client._transport.call = call  # type: ignore[method-assign]
    with pytest.raises(UnexpectedAnswerError, match="/version"):
        await client.get_json("/version")


DISCOVERY = {
    "/version": {"major": "1", "minor": "37"},
    "/apis/resource.k8s.io": {"versions": [{"version": "v1"}]},
    "/apis/resource.k8s.io/v1": {"resources": []},
}


async def test_the_diagnostics_read_a_cluster_with_such_objects_and_name_what_they_lack(
    server: RawServer, client: Client
) -> None:
    odd = claim("odd").replace(b'"requests":[', b'"requests":[3,')
    server.json = DISCOVERY
    server.objects[PATH] = [claim("evil", parameters=HOSTILE["5000 levels of lists"], device="gpu-0"), odd]
    state = redact(await collect_state(client, lambda: "now"))
    assert [value.metadata.name for value in state.claims] == ["evil"]
    assert state.claims[0].status.allocation is not None
    assert state.unreadable == ("ResourceClaim team-a/odd",)
    assert decode_dump(encode_dump(state), "dump").unreadable == state.unreadable


def test_a_command_names_what_it_cannot_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(encode_dump(ClusterState(unreadable=("ResourceClaim team-a/odd",))))
    assert main(["frag", "--from", str(file)]) == 0
    assert "ResourceClaim team-a/odd cannot be read; devices that it may hold count as free" in capsys.readouterr().err


@pytest.mark.parametrize("data", [DEEP, b'{"state":' + DEEP + b"}"])
def test_a_dump_like_this_is_no_dump(data: bytes) -> None:
    with pytest.raises(InvalidDocumentError, match="is not a dump"):
        decode_dump(data, "dump")


def _load(path: Path) -> None:
    load_manifests([path])


def _plan(path: Path) -> None:
    from kerf_dra.driver.cli.cluster.plan import read_documents

    list(read_documents(path))


@pytest.mark.parametrize("load", [_load, _plan])
@pytest.mark.parametrize(
    "text", ["a: " + "[" * 3000 + "]" * 3000, "a: " + "[" * 150 + "]" * 150, "a: &a [*a]"], ids=["deep", "150", "cycle"]
)
def test_manifests_like_this_are_bad_input(load: Callable[[Path], None], text: str, tmp_path: Path) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(text)
    with pytest.raises((BadManifestsError, InvalidDocumentError), match=r"evil\.yaml.* nested"):
        load(file)


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
@pytest.mark.parametrize("levels", [150, 5000])
def test_the_embedded_server_refuses_a_body_like_this(levels: int, content_type: str) -> None:
    body = b'{"metadata":{"name":"a"},"spec":' + b"[" * levels + b"]" * levels + b"}"
    with pytest.raises(ApiStatusError, match="nested more than 100 levels") as raised:
        decode_document(body, content_type)
    assert raised.value.code == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.booleans())
def test_what_is_readable_is_not_changed(value: object, is_ascii: bool) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace")
    assert make_readable(data) == data


@given(st.binary(max_size=40), st.integers(0, 200), st.booleans())
def test_whatever_a_server_may_send_one_can_read_or_say_so(noise: bytes, levels: int, is_closed: bool) -> None:
    data = b'{"a":"' + noise + b'","b":' + b"[" * levels + (b"]" * levels + b"}" if is_closed else b"")
    readable = make_readable(data)
    try:
        check_levels(msgspec.json.decode(readable))
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(ValueError):
            json.loads(data.decode("utf-8", "replace"))
