"""v1alpha2 and v1alpha3 round-trip classic claims; discovery alone chooses between the two generations of DRA."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.allocations import (
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueAllocationConfiguration,
)
from kerf_dra.api.model.classic import (
    MAX_CONSUMERS,
    ONLY_REQUEST,
    ClassicAllocation,
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicClass,
    ClassicRequest,
    ClassicTemplate,
    ClassicTemplateSpec,
    ParametersReference,
    PodSchedulingContext,
)
from kerf_dra.api.model.metadata import NodeSelector, ObjectMeta
from kerf_dra.api.resource import v1alpha2, v1alpha3
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.registry import choose_classic_kinds
from kerf_dra.api.resource.resource_handle import (
    HandleTooLargeError,
    UnreadableHandleError,
    decode_handle,
    encode_handle,
)
from kerf_dra.api.wire import Kind, UndecodableObjectError
from tests.strategies import JSON_OBJECTS, TEXT, values

DRIVER = "kerf.dev"
RESULTS = st.builds(DeviceRequestAllocationResult, request=TEXT, driver=st.just(DRIVER), pool=TEXT, device=TEXT)
CONFIGS = st.builds(
    DeviceAllocationConfiguration,
    source=st.sampled_from(["FromClass", "FromClaim"]),
    requests=st.lists(TEXT, max_size=2).map(tuple),
    opaque=st.builds(OpaqueAllocationConfiguration, driver=st.just(DRIVER), parameters=JSON_OBJECTS),
)
DEVICES = st.builds(
    DeviceAllocationResult,
    results=st.lists(RESULTS, min_size=1, max_size=3).map(tuple),
    config=st.lists(CONFIGS, max_size=2).map(tuple),
)
ALLOCATIONS = st.builds(
    ClassicAllocation,
    devices=DEVICES,
    node_selector=st.none() | values(NodeSelector),
    max_pods=st.integers(1, MAX_CONSUMERS),
    drivers=st.just((DRIVER,)),
)
SPECS = {
    "v1alpha2": st.builds(
        ClassicClaimSpec,
        requests=st.tuples(
            st.builds(ClassicRequest, class_name=TEXT, parameters_ref=st.none() | values(ParametersReference))
        ),
        immediate=st.booleans(),
    ),
    "v1alpha3": st.builds(
        ClassicClaimSpec,
        requests=st.lists(
            st.builds(
                ClassicRequest,
                name=TEXT,
                class_name=TEXT,
                parameters=st.lists(JSON_OBJECTS, max_size=2).map(tuple),
                count=st.integers(1, 8),
            ),
            max_size=2,
            unique_by=lambda request: request.name,
        ).map(tuple),
        controller=st.just(DRIVER),
    ),
}
KINDS = pytest.mark.parametrize("kinds", [v1alpha2.KINDS, v1alpha3.KINDS], ids=lambda kinds: kinds.version)


def there_and_back(kind: Kind[Any], value: Any) -> Any:
    return kind.decode(json.dumps(kind.encode(value)).encode())


@KINDS
@given(data=st.data())
def test_any_claim_survives_the_round_trip(kinds: ClassicKinds, data: st.DataObject) -> None:
    allocation = data.draw(st.none() | ALLOCATIONS)
    claim = ClassicClaim(
        metadata=data.draw(values(ObjectMeta)),
        spec=data.draw(SPECS[kinds.version]),
        status=ClassicClaimStatus(
            driver_name=DRIVER if allocation else "",
            allocation=allocation,
            deallocation_requested=data.draw(st.booleans()),
        ),
    )
    assert there_and_back(kinds.claims, claim) == claim


@KINDS
@given(data=st.data())
def test_templates_classes_and_contexts_survive_the_round_trip(kinds: ClassicKinds, data: st.DataObject) -> None:
    metadata = data.draw(values(ObjectMeta))
    template = ClassicTemplate(metadata=metadata, spec=ClassicTemplateSpec(spec=data.draw(SPECS[kinds.version])))
    assert there_and_back(kinds.templates, template) == template
    suitable = data.draw(st.none() | values(NodeSelector))
    if kinds.version == "v1alpha2":
        reference = data.draw(st.none() | values(ParametersReference))
        class_ = ClassicClass(
            metadata=metadata, driver_name=DRIVER, parameters_ref=reference, suitable_nodes=suitable, structured=True
        )
    else:
        class_ = ClassicClass(metadata=metadata, parameters={DRIVER: data.draw(JSON_OBJECTS)}, suitable_nodes=suitable)
    assert there_and_back(kinds.classes, class_) == class_
    context = data.draw(values(PodSchedulingContext))
    assert there_and_back(kinds.scheduling_contexts, context) == context


@KINDS
@given(allocation=ALLOCATIONS)
def test_the_kubelet_plugin_reads_from_a_claim_what_the_controller_wrote(
    kinds: ClassicKinds, allocation: ClassicAllocation
) -> None:
    status = kinds.allocated(allocation, DRIVER)
    wire = {"metadata": {"name": "claim"}, "spec": {"resourceClassName": "x"}, "status": status}
    read = kinds.resource_claims.decode(json.dumps(wire).encode())
    assert read.status.allocation is not None
    assert read.status.allocation.devices == allocation.devices
    assert read.status.allocation.node_selector == allocation.node_selector


def test_the_kubelet_plugin_reads_the_names_by_which_an_allocation_may_call_requests() -> None:
    requests = [{"name": name, "deviceClassName": "x"} for name in ("first", "second")]
    claims = [
        (v1alpha2.KINDS, {"spec": {"resourceClassName": "x"}}),
        (v1alpha3.KINDS, {"spec": {"controller": DRIVER, "devices": {"requests": requests}}}),
    ]
    read = [kinds.resource_claims.decode(json.dumps(wire).encode()) for kinds, wire in claims]
    names = [[request.name for request in claim.spec.devices.requests] for claim in read]
    assert names == [[ONLY_REQUEST], ["first", "second"]]


def test_an_allocation_of_v1alpha2_names_its_driver_beside_the_handle() -> None:
    # V-1, V-8
    result = DeviceRequestAllocationResult(request="", driver=DRIVER, pool="node-1/gpu", device="gpu-0")
    allocation = ClassicAllocation(devices=DeviceAllocationResult(results=(result,)), drivers=(DRIVER,))
    status = v1alpha2.KINDS.allocated(allocation, DRIVER)
    assert status["driverName"] == DRIVER
    assert [handle["driverName"] for handle in status["allocation"]["resourceHandles"]] == [DRIVER]


def test_an_allocation_says_how_many_pods_may_use_it_where_the_sharing_policy_reads_it() -> None:
    # deploy/classic/sharing-policy.yaml
    allocation = ClassicAllocation(max_pods=4, drivers=(DRIVER,))
    (handle,) = v1alpha2.KINDS.allocated(allocation, DRIVER)["allocation"]["resourceHandles"]
    assert handle["data"].startswith('{"apiVersion":"kerf.dev/v1alpha1","kind":"AllocatedDevices","maxPods":4,')
    (entry,) = v1alpha3.KINDS.allocated(allocation, DRIVER)["allocation"]["devices"]["config"]
    assert entry["opaque"]["parameters"] == {"apiVersion": "kerf.dev/v1alpha1", "kind": "ClaimSharing", "maxPods": 4}


@pytest.mark.parametrize(("shareable", "max_pods"), [(True, MAX_CONSUMERS), (False, 1)])
def test_a_handle_that_says_no_number_is_taken_at_the_apis_word(shareable: bool, max_pods: int) -> None:
    data = '{"apiVersion":"kerf.dev/v1alpha1","kind":"AllocatedDevices","results":[]}'
    found = {"resourceHandles": [{"driverName": DRIVER, "data": data}], "shareable": shareable}
    wire = {"spec": {"resourceClassName": "x"}, "status": {"driverName": DRIVER, "allocation": found}}
    allocation = v1alpha2.KINDS.claims.decode(json.dumps(wire).encode()).status.allocation
    assert allocation is not None
    assert allocation.max_pods == max_pods


@KINDS
def test_releasing_clears_allocation_and_request_in_one_update(kinds: ClassicKinds) -> None:
    # V-7
    assert {"allocation", "deallocationRequested"} <= kinds.released.keys()
    assert not any(kinds.released.values())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "is not JSON"),
        ("not json", "is not JSON"),
        ("{}", "apiVersion"),
        ('{"apiVersion":"kerf.dev/v1alpha1","kind":"AllocatedDevices","results":[],"more":1}', "more"),
        ('{"apiVersion":"kerf.dev/v9","kind":"AllocatedDevices","results":[]}', "of kerf.dev/v9"),
        ('{"apiVersion":"kerf.dev/v1alpha1","kind":"Other","results":[]}', "is a Other"),
        (
            (
                '{"apiVersion":"kerf.dev/v1alpha1","kind":"AllocatedDevices",'
                '"results":[{"request":"","driver":"b","pool":"p","device":"d"}]}'
            ),
            "devices of b in a handle of kerf.dev",
        ),
    ],
)
def test_a_handle_that_kerf_did_not_write_is_told_apart_and_hides_nothing(data: str, reason: str) -> None:
    with pytest.raises(UnreadableHandleError, match=reason):
        decode_handle(DRIVER, data)
    handles = [{"driverName": DRIVER, "data": data}]
    status = {"driverName": DRIVER, "allocation": {"resourceHandles": handles}}
    wire = json.dumps({"metadata": {"name": "c"}, "spec": {"resourceClassName": "x"}, "status": status}).encode()
    allocation = v1alpha2.KINDS.claims.decode(wire).status.allocation
    assert allocation is not None
    assert reason in allocation.unreadable[DRIVER]
    with pytest.raises(UndecodableObjectError, match=f"resource handle of {DRIVER}"):
        v1alpha2.KINDS.resource_claims.decode(wire)


def test_an_allocation_without_handles_belongs_to_the_driver_of_the_status() -> None:
    # K-3
    wire = {"spec": {"resourceClassName": "x"}, "status": {"driverName": "other", "allocation": {}}}
    allocation = v1alpha2.KINDS.claims.decode(json.dumps(wire).encode()).status.allocation
    assert allocation is not None
    assert allocation.drivers == ("other",)
    assert allocation.unreadable == {"other": "there is none"}


def test_an_allocation_by_the_scheduler_is_none_of_ours() -> None:
    # 1.30, structured parameters
    handle = {"driverName": DRIVER, "structuredData": {"nodeName": "n1", "results": []}}
    wire = {
        "spec": {"resourceClassName": "x"},
        "status": {"driverName": DRIVER, "allocation": {"resourceHandles": [handle]}},
    }
    allocation = v1alpha2.KINDS.claims.decode(json.dumps(wire).encode()).status.allocation
    assert allocation is not None
    assert (allocation.drivers, allocation.unreadable) == ((), {})


def test_an_allocation_that_does_not_fit_into_a_handle_is_refused() -> None:
    # V-8: 16 KiB
    results = tuple(
        DeviceRequestAllocationResult(request="", driver=DRIVER, pool="node-1/gpu", device=f"gpu-{number}")
        for number in range(400)
    )
    with pytest.raises(HandleTooLargeError, match="16384"):
        encode_handle(DeviceAllocationResult(results=results), 1)


def test_what_only_the_schedulers_allocator_could_heed_is_named() -> None:
    request = {
        "name": "a",
        "deviceClassName": "x",
        "selectors": [{"cel": {"expression": "true"}}],
        "allocationMode": "All",
        "adminAccess": True,
    }
    spec = {"controller": DRIVER, "devices": {"requests": [request], "constraints": [{"matchAttribute": "a/b"}]}}
    claim = v1alpha3.KINDS.claims.decode(json.dumps({"spec": spec}).encode())
    assert claim.spec.requests[0].unsupported == ("selectors", "allocationMode: All", "adminAccess", "constraints")


@pytest.mark.parametrize(
    ("resources", "version"),
    [
        ({"v1alpha2": ["resourceclaims", "podschedulingcontexts"]}, "v1alpha2"),
        ({"v1alpha3": ["resourceclaims", "podschedulingcontexts"]}, "v1alpha3"),
        ({"v1alpha3": ["resourceclaims"]}, None),
        ({"v1alpha3": ["devicetaintrules"], "v1": ["resourceclaims"]}, None),
        ({"v1alpha2": ["podschedulingcontexts"], "v1beta1": ["resourceclaims"]}, None),
        ({}, None),
    ],
)
def test_discovery_tells_whether_controllers_allocate(resources: dict[str, list[str]], version: str | None) -> None:
    chosen = choose_classic_kinds(resources)
    assert (chosen.version if chosen else None) == version
