"""Checks that a survey does not contradict itself: decisions about what is ours rest on it."""

from itertools import combinations

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.kubeletplugin.backends.base import Backend, CardSurvey


class ContradictorySurveyError(TransientError):
    """A backend's survey of a card contradicts itself or the card; nothing is done on such a card."""

    def __init__(self, card_uuid: str, reason: str) -> None:
        super().__init__(f"the survey of card {card_uuid} cannot be true: {reason}; compare with the vendor's tool")


def survey_card(backend: Backend, card_uuid: str, units: int | None) -> CardSurvey:
    """Have ``backend`` survey the card, which has ``units`` units; None: not known.

    Raises ContradictorySurveyError, and whatever the backend raises.
    """
    survey = backend.survey(card_uuid)
    if reason := _find_contradiction(survey, card_uuid, units):
        raise ContradictorySurveyError(card_uuid, reason)
    return survey


def _find_contradiction(survey: CardSurvey, card_uuid: str, units: int | None) -> str:
    if survey.card_uuid != card_uuid:
        return f"it is of card {survey.card_uuid}"
    for found in survey.partitions:
        if not found.id:
            return f"{found} has no id"
        if found.placement is None:
            continue
        start, end = found.placement.start, found.placement.end
        if start < 0 or found.placement.size < 1 or (units is not None and end > units):
            beyond = "the card" if units is None else f"the card's {units} units"
            return f"{found.id} has units {start} to {end - 1}, outside of {beyond}"
    for one, other in combinations(survey.partitions, 2):
        if one.id == other.id:
            return f"two partitions have the id {one.id}"
        if one.placement is not None and other.placement is not None and one.placement.overlaps(other.placement):
            return f"{one.id} and {other.id} overlap"
    return ""
