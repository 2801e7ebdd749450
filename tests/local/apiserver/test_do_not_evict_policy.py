"""The policy of ``deploy/do-not-evict``: which pods may be marked so that the reclaimer evicts none of them.

The embedded API server has no selectors of namespaces: what the policy's own selects is compared as it is written.
"""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.driver.reclaim.holders import DO_NOT_EVICT
from tests.local.apiserver.policy_server import PolicyServer

POLICY: Final = Path(__file__).parents[3] / "deploy" / "do-not-evict" / "policy.yaml"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(POLICY.read_text()))


@pytest.fixture(scope="module")
def server() -> PolicyServer:
    """The policy in a namespace without the label."""
    found = documents()
    del found[0]["spec"]["matchConstraints"]["namespaceSelector"]
    return PolicyServer(found)


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **fields: Any) -> Any:
    metadata = {"labels": labels, "annotations": annotations}
    return {"metadata": {"name": "p", **{key: value for key, value in metadata.items() if value is not None}}, **fields}


MARK: Final = {DO_NOT_EVICT: "true"}
PLAIN: Final = {"app": "web"}


@pytest.mark.parametrize(
    ("new", "old", "is_refused"),
    [
        (pod(), None, False),
        (pod(PLAIN, PLAIN), None, False),
        (pod(MARK), None, True),
        (pod(PLAIN, MARK), None, True),
        (pod({DO_NOT_EVICT: ""}), None, True),
        (pod({DO_NOT_EVICT: "false"}), None, False),
        (pod(MARK), pod(), True),
        (pod(annotations=MARK), pod(MARK), True),
        (pod(MARK, spec={"changed": True}), pod(MARK), False),
        (pod({DO_NOT_EVICT: "yes"}), pod(MARK), True),
        (pod(), pod(MARK, MARK), False),
    ],
)
def test_a_mark_is_refused_where_it_is_new(server: PolicyServer, new: Any, old: Any, is_refused: bool) -> None:
    said = server.refusal("pods", new=new, old=old, group="", version="v1")
    assert ("may not be marked kerf.dev/do-not-evict" in said) is is_refused, said


def test_other_objects_are_not_judged(server: PolicyServer) -> None:
    assert server.refusal("configmaps", new=pod(MARK), group="", version="v1") == ""


def test_namespaces_with_the_label_are_left_out_and_writes_that_cannot_be_judged_are_refused() -> None:
    [policy, binding] = documents()
    [chosen] = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert chosen == {"key": DO_NOT_EVICT, "operator": "NotIn", "values": ["allowed"]}
    assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Fail", ["Deny"])
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
