"""The claim controller's decisions (kubernetes/pkg/controller/resourceclaim)."""

import pytest

from kerf_dra.api.core.v1 import Pod, PodResourceClaim, PodSpec, PodStatus
from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimConsumerReference, ResourceClaimStatus
from kerf_dra.api.model.claims import (
    POD_CLAIM_NAME,
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.local.controllers.resource_claims import (
    from_template,
    generated_metadata,
    is_done,
    owning_pod,
    release,
)

CONSUMERS = tuple(ResourceClaimConsumerReference(resource="pods", name=name, uid=name) for name in ("a", "b"))


def pod(*, phase: str = "Pending", node: str = "", is_terminating: bool = False) -> Pod:
    metadata = ObjectMeta(name="p", namespace="ns", uid="p-uid", deletion_timestamp="t" if is_terminating else None)
    return Pod(metadata=metadata, spec=PodSpec(node_name=node), status=PodStatus(phase=phase))


def allocated(*consumers: ResourceClaimConsumerReference) -> ResourceClaim:
    status = ResourceClaimStatus(allocation=AllocationResult(), reserved_for=consumers)
    return ResourceClaim(metadata=ObjectMeta(uid="u", resource_version="7"), status=status)


@pytest.mark.parametrize(
    ("is_now", "done"),
    [
        (None, True),
        (pod(), False),
        (pod(phase="Running", node="n"), False),
        (pod(phase="Succeeded", node="n"), True),
        (pod(phase="Failed", node="n"), True),
        (pod(is_terminating=True), True),
        (pod(is_terminating=True, node="n", phase="Running"), False),
    ],
)
def test_a_pod_is_done_when_it_can_no_longer_use_its_claims(is_now: Pod | None, done: bool) -> None:
    assert is_done(is_now) is done


def test_a_claim_in_use_is_left_alone() -> None:
    running = pod(phase="Running", node="n")
    assert release(allocated(*CONSUMERS), {"a": running, "b": running}) is None


def test_only_the_pod_that_is_done_is_taken_off_a_shared_claim() -> None:
    patch = release(allocated(*CONSUMERS), {"a": None, "b": pod(phase="Running", node="n")})
    assert patch == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "status": {"reservedFor": [{"resource": "pods", "name": "b", "uid": "b"}]},
    }


def test_the_allocation_goes_with_the_last_consumer() -> None:
    patch = release(allocated(*CONSUMERS), {"a": None, "b": None})
    assert patch is not None
    assert patch["status"] == {"reservedFor": None, "allocation": None, "devices": None}


def test_an_allocation_that_nobody_ever_reserved_is_cleared() -> None:
    patch = release(allocated(), {})
    assert patch is not None
    assert patch["status"]["allocation"] is None


def test_a_consumer_that_is_no_pod_keeps_the_claim() -> None:
    group = ResourceClaimConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g")
    assert release(allocated(group), {}) is None


def test_a_claim_from_a_template_belongs_to_its_pod_and_entry() -> None:
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="gpu"),)))
    labels = ObjectMeta(labels={"team": "a"}, annotations={"note": "x"})
    template = ResourceClaimTemplate(spec=ResourceClaimTemplateSpec(metadata=labels, spec=spec))
    metadata = generated_metadata(pod(), PodResourceClaim(name="gpu"), template.spec.metadata)
    claim = from_template(metadata, template)
    owner = owning_pod(claim)
    assert owner is not None
    assert (owner.uid, owner.controller) == ("p-uid", True)
    assert (claim.metadata.generate_name, claim.metadata.namespace) == ("p-gpu-", "ns")
    assert claim.metadata.annotations == {"note": "x", POD_CLAIM_NAME: "gpu"}
    assert claim.metadata.labels == {"team": "a"}
    assert claim.spec == spec
    assert owning_pod(ResourceClaim()) is None
