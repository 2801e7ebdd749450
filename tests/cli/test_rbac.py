"""``kerf rbac``: the permissions of the kubelet plugin, for the drivers that it hosts."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from driver.cli import main
from driver.cli.rbac import build_permissions
from driver.local.apiserver.admission import validating_policies
from driver.local.apiserver.admission.validating_policies import AdmissionAttributes
from driver.local.apiserver.meta.status_errors import ApiStatusError
from driver.local.apiserver.storage import GroupResource, ObjectKey, Storage
from tests.generate import rbac

PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
PLUGIN = "system:serviceaccount:kerf-system:kerf-kubelet-plugin"


def documents(text: str) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def judge(text: str, write: AdmissionAttributes) -> str | None:
    """Why the policies of ``text`` refuse a write; None: they do not."""
    storage = Storage(history=1)
    for document in yaml.safe_load_all(text):
        if document["kind"] in PLURALS:
            resource = GroupResource("admissionregistration.k8s.io", PLURALS[document["kind"]])
            storage.put(resource, ObjectKey("", document["metadata"]["name"]), document)
    try:
        validating_policies.check_policies(storage, write)
    except ApiStatusError as error:
        return error.message
    return None


def refusal(text: str, operation: str, node: str, driver: str, user: str = PLUGIN) -> str | None:
    """Why the policies of ``text`` refuse a slice to the plugin on node n1; None: they do not."""
    slice_ = {"metadata": {"name": "s"}, "spec": {"nodeName": node, "driver": driver}}
    write = AdmissionAttributes(
        operation=operation,  # type: ignore[arg-type]
        resource=GroupResource("resource.k8s.io", "resourceslices"),
        version="v1",
        subresource="",
        key=ObjectKey("", "s"),
        new=None if operation == "DELETE" else slice_,  # type: ignore[arg-type]
        old=None if operation == "CREATE" else slice_,
        user={"username": user, "extra": {"authentication.kubernetes.io/node-name": ["n1"]}},
    )
    return judge(text, write)


def status_refusal(old: dict[str, Any], new: dict[str, Any], user: str = PLUGIN) -> str | None:
    """Why the policies refuse that the status of a claim becomes ``new``; None: they do not."""
    before, after = ({"metadata": {"name": "c"}, "spec": {}, "status": status} for status in (old, new))
    write = AdmissionAttributes(
        operation="UPDATE",
        resource=GroupResource("resource.k8s.io", "resourceclaims"),
        version="v1",
        subresource="status",
        key=ObjectKey("default", "c"),
        new=after,
        old=before,
        user={"username": user},
    )
    return judge(build_permissions(), write)


def test_the_manifest_is_what_the_command_prints_for_kerfs_own_families(tmp_path: Path) -> None:
    (path,) = rbac.generate(tmp_path)
    assert (rbac.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"


def test_the_command_prints_the_permissions_of_the_chosen_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--family", "fpga", "--name", "fpgas", "--namespace", "lab"]) == 0
    found = documents(capsys.readouterr().out)
    assert found["ServiceAccount"]["metadata"] == {"name": "fpgas", "namespace": "lab"}
    (rule,) = (rule for rule in found["ClusterRole"]["rules"] if rule["resources"] == ["resourceclaims/driver"])
    assert rule["resourceNames"] == ["fpga.kerf.dev"]
    assert rule["verbs"] == ["associated-node:patch"]
    assert found["ClusterRoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "fpgas", "namespace": "lab"}]


def test_an_unknown_family_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--family", "npu"]) == 1
    assert "no family 'npu'" in capsys.readouterr().err


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_a_plugin_writes_slices_of_its_own_node_and_drivers_only(operation: str) -> None:
    text = build_permissions()
    assert refusal(text, operation, "n1", "gpu.kerf.dev") is None
    assert refusal(text, operation, "n1", "fpga.kerf.dev") is None
    assert 'ResourceSlice of node "n2"' in (refusal(text, operation, "n2", "gpu.kerf.dev") or "")
    assert 'ResourceSlice of driver "nic.example.com"' in (refusal(text, operation, "n1", "nic.example.com") or "")
    assert refusal(text, operation, "n2", "nic.example.com", user="somebody") is None


def test_a_plugin_of_one_family_may_not_write_the_other_familys_slices() -> None:
    assert refusal(build_permissions(("fpga",)), "CREATE", "n1", "gpu.kerf.dev") is not None


ALLOCATED: dict[str, Any] = {
    "allocation": {"devices": {"results": [{"request": "r", "driver": "gpu.kerf.dev", "pool": "p", "device": "d"}]}},
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}
OURS = {"driver": "gpu.kerf.dev", "pool": "p", "device": "d", "data": {"uuid": "GPU-1"}}
OTHERS = {"driver": "nic.example.com", "pool": "p", "device": "d"}
ONLY_DEVICES = "may write status.devices of a ResourceClaim, and nothing else of its status"
ONLY_OURS = "may not write other drivers' entries in status.devices"


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (ALLOCATED, {**ALLOCATED, "devices": [OURS]}, ""),
        ({**ALLOCATED, "devices": [OTHERS, OURS]}, {**ALLOCATED, "devices": [OTHERS]}, ""),
        ({**ALLOCATED, "devices": [OURS]}, ALLOCATED, ""),
        (ALLOCATED, {}, ONLY_DEVICES),
        ({}, ALLOCATED, ONLY_DEVICES),
        (ALLOCATED, {**ALLOCATED, "reservedFor": []}, ONLY_DEVICES),
        (ALLOCATED, {**ALLOCATED, "devices": [OTHERS]}, ONLY_OURS),
        ({**ALLOCATED, "devices": [OTHERS]}, {**ALLOCATED, "devices": [OURS]}, ONLY_OURS),
    ],
)
def test_a_plugin_writes_of_the_status_of_claims_its_drivers_devices_only(
    old: dict[str, Any], new: dict[str, Any], refused: str
) -> None:
    assert refused in (said := status_refusal(old, new) or "")
    assert bool(said) == bool(refused)
    assert status_refusal(old, new, user="system:kube-scheduler") is None
