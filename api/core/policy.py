"""Disruption budgets and evictions (``policy/v1``), with the few fields that Kerf reads or writes."""

from dataclasses import replace
from typing import Final

from kerf_dra.api.model.base import Value
from kerf_dra.api.model.metadata import LabelSelectorRequirement, Object
from kerf_dra.api.wire import Kind, identity_kind


class PodSelector(Value):
    """The pods of a budget (``metav1.LabelSelector``); without any requirement all of its namespace."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    @property
    def requirements(self) -> tuple[LabelSelectorRequirement, ...]:
        """All requirements as expressions."""
        labels = (
            LabelSelectorRequirement(key=key, operator="In", values=(value,))
            for key, value in self.match_labels.items()
        )
        return (*labels, *self.match_expressions)


class PodDisruptionBudgetSpec(Value):
    """The pods that a budget protects; without a selector none."""

    selector: PodSelector | None = None


class PodDisruptionBudgetStatus(Value):
    """What the disruption controller has counted."""

    disruptions_allowed: int = 0
    """How many pods may be evicted now."""


class PodDisruptionBudget(Object):
    """A limit of evictions at a time among pods."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class EvictionPreconditions(Value):
    """What must hold of a pod when it is evicted."""

    uid: str


class EvictionOptions(Value):
    """The options of the deletion that an eviction is (``metav1.DeleteOptions``)."""

    preconditions: EvictionPreconditions


class Eviction(Object):
    """Asks the API server to evict the pod of its own name: created once, as the pod's subresource ``eviction``."""

    delete_options: EvictionOptions


POD_DISRUPTION_BUDGETS: Final[Kind[PodDisruptionBudget]] = identity_kind(
    PodDisruptionBudget, group="policy", version="v1", plural="poddisruptionbudgets", namespaced=True
)


EVICTIONS: Final[Kind[Eviction]] = replace(
    identity_kind(Eviction, group="policy", version="v1", plural="pods", namespaced=True), group=""
)
"""Evictions at the path of pods (``/api/v1``), though their documents are of ``policy/v1``."""
