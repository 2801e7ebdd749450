"""Which nodes a pod may run on regardless of devices."""

import msgspec
import pytest

from kerf_dra.api.core.v1 import Affinity, Node, NodeAffinity, NodeSpec, NodeStatus, Pod, PodSpec, Taint, Toleration
from kerf_dra.api.model.metadata import Condition, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.driver.scheduling.node_filter import filter_node

READY = NodeStatus(conditions=(Condition(type="Ready", status="True"),))
NODE = Node(metadata=ObjectMeta(name="node-1", labels={"zone": "a"}), status=READY)
TAINTED = msgspec.structs.replace(NODE, spec=NodeSpec(taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),)))
PREFERRED = msgspec.structs.replace(NODE, spec=NodeSpec(taints=(Taint(key="gpu", effect="PreferNoSchedule"),)))
CORDONED = msgspec.structs.replace(NODE, spec=NodeSpec(unschedulable=True))
UNREADY = msgspec.structs.replace(NODE, status=NodeStatus())


def in_zone(zone: str) -> Affinity:
    requirement = NodeSelectorRequirement(key="zone", operator="In", values=(zone,))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(requirement,)),))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


@pytest.mark.parametrize(
    ("spec", "node", "said"),
    [
        (PodSpec(), NODE, None),
        (PodSpec(), UNREADY, "not ready"),
        (PodSpec(), CORDONED, "unschedulable"),
        (PodSpec(tolerations=(Toleration(operator="Exists"),)), CORDONED, None),
        (PodSpec(), TAINTED, "untolerated taint"),
        (PodSpec(), PREFERRED, None),
        (PodSpec(tolerations=(Toleration(key="gpu", value="yes"),)), TAINTED, None),
        (PodSpec(tolerations=(Toleration(key="gpu", value="no"),)), TAINTED, "untolerated taint"),
        (PodSpec(tolerations=(Toleration(key="gpu", operator="Exists", effect="NoExecute"),)), TAINTED, "untolerated"),
        (PodSpec(node_selector={"zone": "a"}), NODE, None),
        (PodSpec(node_selector={"zone": "b"}), NODE, "node affinity/selector"),
        (PodSpec(affinity=in_zone("a")), NODE, None),
        (PodSpec(affinity=in_zone("b")), NODE, "node affinity/selector"),
        (PodSpec(affinity=Affinity()), NODE, None),
    ],
)
def test_a_node_is_passed_over_for_a_reason(spec: PodSpec, node: Node, said: str | None) -> None:
    told = filter_node(Pod(spec=spec), node)
    assert told is None if said is None else told is not None and said in told
