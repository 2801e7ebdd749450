"""Who may write FpgaShells and FpgaImages: the policies of ``deploy``, as the embedded API server evaluates them."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.local.apiserver.policy_server import PolicyServer, account

Json = dict[str, Any]
MANIFEST: Final = Path(__file__).parents[2] / "deploy/manifests/17-fpga-descriptions.yaml"
POLICIES: Final = PolicyServer(yaml.safe_load_all(MANIFEST.read_text()))
CONTROLLER: Final = {**account("kerf-controller"), "groups": ["system:serviceaccounts:kerf-system"]}
PLUGIN: Final = {**account("kerf-kubelet-plugin"), "groups": ["system:serviceaccounts:kerf-system"]}
NODE: Final = {"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]}
ADMINISTRATOR: Final = {"username": "ada", "groups": ["fpga-team", "system:authenticated"]}
GITOPS: Final = {"username": "system:serviceaccount:flux:flux", "groups": ["system:serviceaccounts:flux"]}
MASTER: Final = {"username": "root", "groups": ["system:masters"]}
ONLY_READ: Final = "nodes and the accounts of Kerf only read FpgaShells and FpgaImages"
ONLY_CONTROLLER: Final = "only the controller of Kerf writes the status of FpgaShells and FpgaImages"
OBJECT: Final[Json] = {"metadata": {"name": "aes"}, "spec": {}}


def refusal(user: Json, resource: str, subresource: str = "", old: Json | None = None) -> str:
    return POLICIES.refusal(
        resource, new=OBJECT, old=old, user=user, subresource=subresource, group="kerf.dev", version="v1alpha1"
    )


@pytest.mark.parametrize("resource", ["fpgashells", "fpgaimages"])
@pytest.mark.parametrize("old", [None, OBJECT], ids=["create", "update"])
@pytest.mark.parametrize(
    ("user", "answer"),
    [
        (ADMINISTRATOR, ""),
        (GITOPS, ""),
        (MASTER, ""),
        (CONTROLLER, ONLY_READ),
        (PLUGIN, ONLY_READ),
        (NODE, ONLY_READ),
    ],
    ids=lambda value: value.get("username", "") if isinstance(value, dict) else "",
)
def test_no_node_and_no_account_of_kerf_writes_what_fpgas_load(
    user: Json, answer: str, old: Json | None, resource: str
) -> None:
    """FP-06: whoever writes them decides what is loaded."""
    assert refusal(user, resource, old=old) == answer


@pytest.mark.parametrize("resource", ["fpgashells", "fpgaimages"])
@pytest.mark.parametrize(
    ("user", "answer"),
    [(CONTROLLER, ""), (ADMINISTRATOR, ONLY_CONTROLLER), (MASTER, ONLY_CONTROLLER), (PLUGIN, ONLY_CONTROLLER)],
    ids=lambda value: value.get("username", "") if isinstance(value, dict) else "",
)
def test_the_status_is_the_controllers_alone(user: Json, answer: str, resource: str) -> None:
    assert refusal(user, resource, subresource="status", old=OBJECT) == answer


def test_other_kinds_are_nobodys_business() -> None:
    assert refusal(PLUGIN, "resourceclasses") == ""
