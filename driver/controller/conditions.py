"""Conditions in the status of Kerf's own objects."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.times import format_time

_MAX_MESSAGE: Final = 32768
"""Characters of a condition's message (``metav1.Condition``)."""


def continue_conditions(
    conditions: Iterable[Condition], previous: Iterable[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Return ``conditions`` of ``generation``, each with the time of its last transition: ``now``, or that of the one
    of its type in ``previous`` that has the same status.
    """
    before = {one.type: one for one in previous}
    return tuple(
        replace(
            condition,
            message=condition.message[:_MAX_MESSAGE],
            last_transition_time=_last_transition(condition, before.get(condition.type)) or format_time(now),
            observed_generation=generation,
        )
        for condition in conditions
    )


def _last_transition(condition: Condition, before: Condition | None) -> str | None:
    return before.last_transition_time if before is not None and before.status == condition.status else None
