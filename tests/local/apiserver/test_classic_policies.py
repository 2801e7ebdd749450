"""The policies of ``deploy/classic``, evaluated by the embedded API server as by a real one (``tests/e2e/classic``)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import MAX_CONSUMERS, ClassicAllocation
from kerf_dra.api.resource import v1alpha2, v1alpha3
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.driver.local.apiserver.admission import validating_policies
from kerf_dra.driver.local.apiserver.admission.policies import AdmissionAttributes
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

DEPLOY = Path(__file__).parents[3] / "deploy" / "classic"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
CLAIMS = GroupResource("resource.k8s.io", "resourceclaims")
KINDS = pytest.mark.parametrize("kinds", [v1alpha2.KINDS, v1alpha3.KINDS], ids=lambda kinds: kinds.version)


@pytest.fixture(scope="module")
def storage() -> Storage:
    """With every policy of ``deploy/classic`` in force."""
    storage = Storage(history=1)
    for file in sorted(DEPLOY.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] in PLURALS:
                resource = GroupResource("admissionregistration.k8s.io", PLURALS[document["kind"]])
                storage.put(resource, ObjectKey("", document["metadata"]["name"]), document)
    return storage


def claim(kinds: ClassicKinds, max_pods: int, consumers: int) -> JsonObject:
    allocated: dict[str, Any] = kinds.allocated(
        ClassicAllocation(max_pods=max_pods, drivers=("gpu.kerf.dev",)), "gpu.kerf.dev"
    )
    return {"status": allocated | ({"reservedFor": [{"uid": str(n)} for n in range(consumers)]} if consumers else {})}


def refusal(storage: Storage, kinds: ClassicKinds, new: JsonObject, old: JsonObject) -> str | None:
    write = AdmissionAttributes(
        operation="UPDATE",
        resource=CLAIMS,
        version=kinds.version,
        subresource="status",
        key=ObjectKey("ns", "claim"),
        new=new,
        old=old,
    )
    try:
        validating_policies.check_policies(storage, write)
    except ApiStatusError as error:
        return error.message
    return None


@KINDS
@pytest.mark.parametrize("max_pods", [1, 2, 14, MAX_CONSUMERS])
def test_no_more_pods_get_a_claim_than_its_allocation_lets(
    storage: Storage, kinds: ClassicKinds, max_pods: int
) -> None:
    #
    before = claim(kinds, max_pods, max_pods - 1)
    assert refusal(storage, kinds, claim(kinds, max_pods, max_pods), before) is None
    before = claim(kinds, max_pods, max_pods)
    message = refusal(storage, kinds, claim(kinds, max_pods, max_pods + 1), before)
    assert message is not None
    assert message.endswith(
        f"denied request: the claim is full: its class lets {max_pods} pods use it at a time (maxPods)"
    )


PLUGIN = "system:serviceaccount:kerf-system:kerf-kubelet-plugin"


@pytest.mark.parametrize(
    ("user", "node", "is_refused"),
    [(PLUGIN, ["n1"], False), (PLUGIN, ["n2"], True), (PLUGIN, None, True), ("admin", None, False)],
)
def test_a_kubelet_plugin_tells_of_its_own_node_only(
    storage: Storage, user: str, node: list[str] | None, is_refused: bool
) -> None:
    #
    extra = {} if node is None else {"authentication.kubernetes.io/node-name": node}
    write = AdmissionAttributes(
        operation="CREATE",
        resource=GroupResource("kerf.dev", "nodeinventories"),
        version="v1alpha1",
        subresource="",
        key=ObjectKey("", "n1-gpu.kerf.dev"),
        new={"metadata": {"name": "n1-gpu.kerf.dev"}, "spec": {"node": "n1", "driver": "gpu.kerf.dev"}},
        old=None,
        user={"username": user, "extra": extra},
    )
    if not is_refused:
        validating_policies.check_policies(storage, write)
        return
    with pytest.raises(ApiStatusError, match='may not write the NodeInventory of node "n1"'):
        validating_policies.check_policies(storage, write)


@KINDS
def test_a_claim_that_is_used_by_too_many_may_still_change(storage: Storage, kinds: ClassicKinds) -> None:
    assert refusal(storage, kinds, claim(kinds, 2, 3), claim(kinds, 2, 4)) is None
    assert refusal(storage, kinds, claim(kinds, 2, 4), claim(kinds, 2, 4)) is None


@KINDS
def test_claims_without_a_number_of_ours_are_the_apis_business(storage: Storage, kinds: ClassicKinds) -> None:
    consumers = {"reservedFor": [{"uid": str(number)} for number in range(9)]}
    handle = {"driverName": "other.example", "data": '{"kind":"AllocatedDevices","maxPods":1}'}
    entry = {"source": "FromClaim", "opaque": {"driver": "other.example", "parameters": {"maxPods": 1}}}
    for allocation in ({"resourceHandles": [handle, {"driverName": "a"}]}, {"devices": {"config": [entry]}}, {}):
        assert refusal(storage, kinds, {"status": {"allocation": allocation} | consumers}, {"status": {}}) is None
    assert refusal(storage, kinds, {"status": consumers}, {}) is None
