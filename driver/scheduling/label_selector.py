"""Whether labels meet the requirements of a label selector (``metav1.LabelSelector``). Pure."""

from collections.abc import Iterable, Mapping

from api.model.metadata import LabelSelectorRequirement


def match_labels(requirements: Iterable[LabelSelectorRequirement], labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` meet all ``requirements``; no requirement: every label does."""
    return all(_meets(requirement, labels) for requirement in requirements)


def _meets(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":  # a label that is absent is in no set
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _is_beyond(value, requirement)


def _is_beyond(value: str | None, requirement: LabelSelectorRequirement) -> bool:
    """Gt and Lt, which selectors in the text form of requests have (``k8s.io/apimachinery`` ``labels``)."""
    try:
        number = int(value or "")
    except ValueError:
        return False
    bound = int(requirement.values[0])
    return number > bound if requirement.operator == "Gt" else number < bound
