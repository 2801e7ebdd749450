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


def refusal(text: str, operation: str, node: str, driver: str, user: str = PLUGIN) -> str | None:
    """Why the policies of ``text`` refuse a slice to the plugin on node n1; None: they do not."""
    storage = Storage(history=1)
    for kind, document in documents(text).items():
        if kind in PLURALS:
            resource = GroupResource("admissionregistration.k8s.io", PLURALS[kind])
            storage.put(resource, ObjectKey("", document["metadata"]["name"]), document)
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
    try:
        validating_policies.check_policies(storage, write)
    except ApiStatusError as error:
        return error.message
    return None


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
