"""A dump has everything that diagnostics need, and nothing that is secret."""

import gzip
import json

import msgspec
import pytest

from kerf_dra.api.core.v1 import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    EnvVar,
    Event,
    ObjectReference,
    ResourceRequirements,
)
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.allocations import AllocatedDeviceStatus, ResourceClaimStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import (
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from kerf_dra.api.model.classic import (
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClass,
    ClassicRequest,
    ClassicTemplate,
    ClassicTemplateSpec,
    PodSchedulingContext,
)
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.resource.registry import load_kinds
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClassicState, ClusterState
from kerf_dra.driver.diagnostics.dump import _unpack, decode_dump, encode_dump, redact
from kerf_dra.driver.diagnostics.explain.why import explain_claim
from tests.fakes.cluster_states import CLASSES, allocate_claims, claim, gpu_cluster, node, pod, replace, slices, state

SECRET = "hunter2"
OPAQUE = OpaqueDeviceConfiguration(driver="gpu.kerf.dev", parameters={"token": SECRET})


def with_secrets() -> ClusterState:
    """Return a state with the secret in every field that users or drivers may fill with private data."""
    metadata = ObjectMeta(
        name="x",
        namespace="default",
        uid="u",
        labels={"l": SECRET},
        annotations={"a": SECRET},
        generate_name=SECRET,
        resource_version=SECRET,
    )
    config = (DeviceClaimConfiguration(requests=("r0",), opaque=OPAQUE),)
    held = allocate_claims(gpu_cluster(), claim("held", "1g-10gb")).claims[0]
    result = held.status.allocation
    assert result is not None
    spec = replace(held.spec, devices=replace(held.spec.devices, config=config))
    container = Container(
        name="main",
        image=SECRET,
        command=(SECRET,),
        args=(SECRET,),
        env=(EnvVar(name="PASSWORD", value=SECRET),),
        resources=ResourceRequirements(limits={"example.com/gpu": Quantity(1)}),
    )
    waiting = pod("waiting", "held", conditions=[Condition(type="Ready", status="False", message=SECRET)])
    status = AllocatedDeviceStatus(
        driver="gpu.kerf.dev",
        pool="p",
        device="d",
        data={"key": SECRET},
        conditions=(Condition(type="Ready", status="True", message=SECRET),),
    )
    return state(
        replace(node("n"), metadata=ObjectMeta(name="n", annotations={"a": SECRET}, labels={"zone": "east"})),
        published=[replace(each, metadata=replace(metadata, name=each.metadata.name)) for each in slices("n")],
        claims=[
            replace(
                held, metadata=metadata, spec=spec, status=ResourceClaimStatus(allocation=result, devices=(status,))
            )
        ],
        pods=[
            replace(
                waiting,
                metadata=metadata,
                spec=replace(waiting.spec, containers=(container,), init_containers=(container,)),
                status=replace(
                    waiting.status,
                    message=SECRET,
                    reason=SECRET,
                    container_statuses=(
                        ContainerStatus(
                            name="main", state=ContainerState(terminated=ContainerStateTerminated(message=SECRET))
                        ),
                    ),
                ),
            )
        ],
        classes=[
            replace(
                each,
                metadata=replace(metadata, name=each.metadata.name),
                spec=replace(each.spec, config=(DeviceClassConfiguration(opaque=OPAQUE),)),
            )
            for each in CLASSES
        ],
    )


def test_no_secret_gets_into_a_dump() -> None:
    full = with_secrets()
    templates = (
        ResourceClaimTemplate(
            metadata=full.claims[0].metadata,
            spec=ResourceClaimTemplateSpec(metadata=full.claims[0].metadata, spec=full.claims[0].spec),
        ),
    )
    about = ObjectReference(kind="Pod", namespace="default", name="x", uid="u", field_path=SECRET)
    full = replace(
        full,
        templates=templates,
        resource_classes=(ResourceClassObject(metadata=full.claims[0].metadata, spec={"device": SECRET}),),
        events=(Event(metadata=full.claims[0].metadata, involved_object=about, reporting_instance=SECRET),),
    )
    assert encode_dump(full).decode().count(SECRET) > 20
    assert SECRET not in encode_dump(redact(full)).decode()


def test_classic_claims_and_classes_lose_the_parameters_of_other_drivers_only() -> None:
    ours: JsonObject = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuClaimParameters"}
    metadata = ObjectMeta(name="c", namespace="default", annotations={"a": SECRET})
    spec = ClassicClaimSpec(requests=(ClassicRequest(class_name="gpu", parameters=({"token": SECRET}, ours)),))
    classic = ClassicState(
        claims=(ClassicClaim(metadata=metadata, spec=spec),),
        templates=(ClassicTemplate(metadata=metadata, spec=ClassicTemplateSpec(metadata=metadata, spec=spec)),),
        classes=(ClassicClass(metadata=metadata, parameters={"other": {"token": SECRET}, "ours": ours}),),
        contexts=(PodSchedulingContext(metadata=metadata),),
    )
    full = ClusterState(classic=classic)
    assert encode_dump(full).decode().count(SECRET) > 5
    kept = redact(full)
    assert SECRET not in encode_dump(kept).decode()
    assert kept.classic is not None
    assert kept.classic.claims[0].spec.requests[0].parameters == (ours,)
    assert kept.classic.classes[0].parameters == {"ours": ours}
    assert decode_dump(encode_dump(kept), "dump.json") == kept


def test_messages_on_which_binding_depends_and_the_hash_of_a_template_stay() -> None:
    full = with_secrets()
    [held] = full.claims
    allocation = held.status.allocation
    assert allocation is not None
    [result] = allocation.devices.results
    waiting = replace(result, binding_conditions=("Loaded",), binding_failure_conditions=("Broken",))
    said = (
        Condition(type="Broken", status="True", message="the image is damaged"),
        Condition(type="Ready", status="True", message=SECRET),
    )
    status = AllocatedDeviceStatus(driver=result.driver, pool=result.pool, device=result.device, conditions=said)
    allocation = replace(allocation, devices=replace(allocation.devices, results=(waiting,)))
    claims = (replace(held, status=replace(held.status, allocation=allocation, devices=(status,))),)
    labeled = replace(pod("p"), metadata=ObjectMeta(name="p", labels={"pod-template-hash": "5d4f", "l": SECRET}))
    kept = redact(replace(full, claims=claims, pods=(labeled,)))
    assert [one.message for one in kept.claims[0].status.devices[0].conditions] == ["the image is damaged", ""]
    assert kept.pods[0].metadata.labels == {"pod-template-hash": "5d4f"}


def test_what_decides_over_devices_stays() -> None:
    full = with_secrets()
    kept = redact(full)
    assert kept.nodes[0].metadata.labels == {"zone": "east"}
    assert kept.claims[0].status.allocation == full.claims[0].status.allocation
    assert kept.claims[0].spec.devices.requests == full.claims[0].spec.devices.requests
    [config] = kept.claims[0].spec.devices.config
    assert (config.requests, config.opaque) == (
        ("r0",),
        OpaqueDeviceConfiguration(driver="gpu.kerf.dev", parameters={}),
    )
    assert [each.spec.devices for each in kept.slices] == [each.spec.devices for each in full.slices]
    assert kept.pods[0].spec.containers[0].resources.limits == {"example.com/gpu": Quantity(1)}


@pytest.mark.parametrize("compress", [False, True])
def test_a_dump_reads_back_as_it_was_written(compress: bool) -> None:
    full = allocate_claims(gpu_cluster(2, 2), claim("a", "1g-10gb"), claim("b", "3g-40gb"))
    assert decode_dump(encode_dump(full, compress=compress), "dump.json") == full


def test_an_answer_from_a_dump_is_the_answer_of_the_cluster() -> None:
    now = allocate_claims(gpu_cluster(2, 1), *(claim(f"c{index}", "7g-80gb") for index in range(2)))
    now = replace(now, claims=(*now.claims, claim("wanted", "3g-40gb")))
    again = decode_dump(encode_dump(redact(now)), "dump.json")
    assert explain_claim(ClusterIndex(again), claim("wanted").ref) == explain_claim(
        ClusterIndex(now), claim("wanted").ref
    )


def test_a_dump_says_what_it_is() -> None:
    document = json.loads(encode_dump(gpu_cluster()))
    assert (document["apiVersion"], document["kind"]) == ("kerf.dev/v1alpha1", "ClusterDump")
    assert document["state"].keys() == {"kubernetes", "gatheredAt", "nodes", "deviceClasses", "resourceSlices"}


def test_fields_of_later_versions_are_passed_over() -> None:
    document = json.loads(encode_dump(gpu_cluster()))
    document["state"]["futureObjects"] = [1]
    assert decode_dump(msgspec.json.encode(document), "dump.json") == gpu_cluster()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"not json",
        b"\xff\xfe",
        b"\x1f\x8bgarbage",
        b'{"apiVersion": "v1", "kind": "List", "state": {}}',
        b'{"apiVersion": "kerf.dev/v1alpha1", "kind": "ClusterDump", "state": {"nodes": 3}}',
        encode_dump(gpu_cluster(), compress=True)[:-20],
        encode_dump(gpu_cluster()).replace(b"81152Mi", b"81152Mx"),
    ],
    ids=["empty", "no fields", "text", "binary", "bad gzip", "other kind", "wrong type", "cut off", "bad quantity"],
)
def test_what_is_no_dump_is_refused_with_the_name_of_the_file(data: bytes) -> None:
    with pytest.raises(InvalidDocumentError, match=r"^some-file: "):
        decode_dump(data, "some-file")


def test_a_dump_is_unpacked_up_to_a_limit_only() -> None:
    data = gzip.compress(b"[" * 1000)
    assert _unpack(data, max_bytes=1000) == b"[" * 1000
    with pytest.raises(EOFError, match="has more than 999 bytes"):
        _unpack(data, max_bytes=999)


def test_a_dump_in_the_form_of_v1beta1_is_read_as_one_in_v1() -> None:
    """`kerf why` said of a request that names its class that it is empty."""
    flat = load_kinds("v1beta1")
    now = replace(gpu_cluster(2), claims=(claim("a", "1g-10gb", "3g-40gb"), claim("b", "1g-20gb")))
    template = ResourceClaimTemplate(
        metadata=ObjectMeta(name="t", namespace="default"), spec=ResourceClaimTemplateSpec(spec=now.claims[0].spec)
    )
    now = replace(now, templates=(template,))
    document = json.loads(encode_dump(now))
    document["state"] |= {
        "resourceClaims": [flat.resource_claims.encode(each) for each in now.claims],
        "resourceClaimTemplates": [flat.resource_claim_templates.encode(each) for each in now.templates],
        "resourceSlices": [flat.resource_slices.encode(each) for each in now.slices],
    }
    data = msgspec.json.encode(document, enc_hook=str)
    assert b'"exactly"' not in data
    assert b'"basic"' in data
    assert decode_dump(data, "dump.json") == decode_dump(encode_dump(now), "dump.json")


@pytest.mark.parametrize("request_", [{"name": "g"}, {"name": "g", "formOfALaterVersion": {"deviceClassName": "c"}}])
def test_a_request_of_no_known_form_stays_as_the_model_reads_it(request_: JsonObject) -> None:
    document = json.loads(encode_dump(replace(gpu_cluster(), claims=(claim("a", "1g-10gb"),))))
    document["state"]["resourceClaims"][0]["spec"]["devices"]["requests"] = [request_]
    [read] = decode_dump(msgspec.json.encode(document), "dump.json").claims
    assert read.spec.devices.requests == (DeviceRequest(name="g"),)
