"""Evaluation of label selectors (``metav1.LabelSelector``)."""

from collections.abc import Iterable, Mapping

from kerf_dra.api.model.metadata import LabelSelectorRequirement


def match_labels(requirements: Iterable[LabelSelectorRequirement], labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` meet all ``requirements``."""
    return all(_meets(requirement, labels) for requirement in requirements)


def _meets(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":  # an absent label is in no set
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compare(value, requirement)


def _compare(value: str | None, requirement: LabelSelectorRequirement) -> bool:
    """Evaluate Gt and Lt, which only the text form of selectors has (``k8s.io/apimachinery`` ``labels``)."""
    try:
        number = int(value or "")
    except ValueError:
        return False
    bound = int(requirement.values[0])
    return number > bound if requirement.operator == "Gt" else number < bound
