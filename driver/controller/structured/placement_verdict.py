"""Whether the placement that a class asks for is in effect: what the condition Placement says. Pure.

| `placement` | a scheduler asks the extender | requests are graded | condition |
|---|---|---|---|
| Packed, Spread | yes | any | True `ExtenderActive` |
| Packed | no | yes | True `Graded` |
| Packed, Spread | not lately | no, or Spread | Unknown `ExtenderNotAskedLately` |
| Packed, Spread | never, or it is disabled | no, or Spread | False `ExtenderNotAsked`, `ExtenderDisabled` |
| None | any | any | True `NoPreference` |
| not set | yes | any | True `ExtenderActive`: it is packed |
| not set | no | any | none |

Evidence that a scheduler asks is a request of one that has the extender's client certificate, to any replica. The
controller cannot read the configuration of schedulers, and a scheduler asks only while it has a pod that fits on two
nodes or more. So silence proves nothing, and after ``LATELY`` the condition is Unknown.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

from kerf_dra.api.kerf.v1alpha1 import ClassPlacement

LATELY: Final = timedelta(hours=1)
"""How long a request of a scheduler counts: in a cluster with CronJobs, or with pods that come and go, there is one in
every hour, and an administrator who changes the scheduler's configuration sees the effect on the same day."""

_CONFIG: Final = "give kube-scheduler what `kerf placement config` prints (docs/placement.md)"
_EFFECTS: Final = {
    "Packed": "the nodes where its devices make the fewest others impossible",
    "Spread": "the nodes where claims of the class hold the fewest devices",
}


class ExtenderState(StrEnum):
    """Whether schedulers ask the extender."""

    DISABLED = "disabled"
    """No replica serves it."""
    NOT_ASKED = "not-asked"
    """No scheduler has ever asked it."""
    NOT_ASKED_LATELY = "not-asked-lately"
    """A scheduler has asked it, longer ago than ``LATELY``."""
    ASKED = "asked"
    """A scheduler has asked it lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFacts:
    """What can put a placement into effect."""

    extender: ExtenderState = ExtenderState.DISABLED
    is_grading_enabled: bool = False
    """Whether the policy of graded placement is in force in the cluster."""
    has_label: bool = False
    """Whether the DeviceClass has the label by which the policy finds it: packed partitions of one profile have it."""

    @property
    def is_graded(self) -> bool:
        """Whether requests of the class get alternatives by the rank of placements: that prefers nodes by packing."""
        return self.is_grading_enabled and self.has_label


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVerdict:
    """Whether the placement of a class is in effect: the fields are those of the condition."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def judge_extender(asked_at: datetime | None, now: datetime) -> ExtenderState:
    """Return whether schedulers ask an extender that is served and was last asked at ``asked_at``; None: never."""
    if asked_at is None:
        return ExtenderState.NOT_ASKED
    return ExtenderState.ASKED if now - asked_at <= LATELY else ExtenderState.NOT_ASKED_LATELY


def judge_placement(placement: ClassPlacement | None, facts: PlacementFacts) -> PlacementVerdict | None:
    """Return whether ``placement`` of a class is in effect; None: the class asks for none, and has none."""
    if placement == "None":
        message = "Kerf prefers no node for pods of the class: the scheduler's own scores decide"
        return PlacementVerdict(status="True", reason="NoPreference", message=message)
    if facts.extender is ExtenderState.ASKED:
        message = f"a scheduler asks Kerf's extender, which prefers for a pod {_EFFECTS[placement or 'Packed']}"
        return PlacementVerdict(status="True", reason="ExtenderActive", message=message)
    if placement is None:
        return None
    if placement == "Packed" and facts.is_graded:
        message = "requests of the class have alternatives, of which the scheduler prefers those that break least"
        return PlacementVerdict(status="True", reason="Graded", message=message)
    return _judge_without_effect(facts)


def _judge_without_effect(facts: PlacementFacts) -> PlacementVerdict:
    extender = facts.extender
    if extender is ExtenderState.NOT_ASKED_LATELY:
        message = (
            "no scheduler has asked Kerf's extender in the last hour: none had a pod that fits on two nodes or more, "
            f"or its configuration lacks the extender: then {_CONFIG}"
        )
        return PlacementVerdict(status="Unknown", reason="ExtenderNotAskedLately", message=message)
    if extender is ExtenderState.NOT_ASKED:
        message = (
            f"not in effect: no scheduler has asked Kerf's extender yet: {_CONFIG}; it asks once a pod fits on two "
            "nodes or more"
        )
        return PlacementVerdict(status="False", reason="ExtenderNotAsked", message=message)
    message = f"not in effect: {_explain_disabled(facts)}, and {_CONFIG}"
    return PlacementVerdict(status="False", reason="ExtenderDisabled", message=message)


def _explain_disabled(facts: PlacementFacts) -> str:
    """Return what is disabled, and the values of the chart that the class needs one of."""
    if facts.has_label:
        return (
            "Kerf's extender and graded placement are disabled: set gradedPlacement.enabled of the chart (Kubernetes "
            "1.36 or later), or set extender.enabled"
        )
    if facts.is_grading_enabled:
        return (
            "Kerf's extender is disabled, and graded placement is only for exclusive GPU partitions of one profile "
            "with placement: Packed: set extender.enabled of the chart"
        )
    return "Kerf's extender is disabled: set extender.enabled of the chart"
