"""Refuses classes that ask for what no known hardware can be, with the fields to blame and what there is instead."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from api.errors import InvalidDocumentError, Problem
from api.kerf.v1alpha1 import ClassCut, ResourceClassSpec
from api.kerf.validation import suggest
from api.model import device_attributes as v
from api.model.quantity import Quantity
from driver.controller.structured.device_types import Shape, model_name
from driver.partitions.catalog import UnknownModelError

CUTS: Final[Mapping[ClassCut, str]] = {"Whole": "whole", "Partition": "partition", "Monitor": "monitor"}
"""A class's word for the attribute ``cut``."""

_SUGGESTIONS: Final = 3
"""Close names in a message: profiles of one kind differ in a digit between models."""


class ClassRefusedError(InvalidDocumentError):
    """A class cannot be compiled. ``reason`` is a word for a condition; ``problems`` name the fields."""

    def __init__(self, reason: str, problems: Iterable[Problem]) -> None:
        self.reason = reason
        super().__init__("ResourceClass", problems)


def minimum_sizes(spec: ResourceClassSpec) -> Iterator[tuple[str, str, Quantity]]:
    """Field path, capacity name and amount of each minimum: fields and capacities go by the same names."""
    if spec.minimum is not None:
        for field in msgspec.structs.fields(spec.minimum):
            amount = getattr(spec.minimum, field.name)
            if amount is not None:
                as_quantity = amount if isinstance(amount, Quantity) else Quantity(amount)
                yield f"spec.minimum.{field.encode_name}", field.encode_name, as_quantity


def largest_of(capacity: str, shape: Shape) -> str:
    """Words for the shape that has the most: ``the largest is 79.25Gi (7g.80gb of h100-80gb-sxm)``."""
    size = shape.size(capacity)
    text = f"{int(size) / 2**30:.6g}Gi" if capacity == v.CAPACITY_MEMORY else str(int(size))
    return f"the largest is {text} ({shape})"


def resolve_models(spec: ResourceClassSpec, shapes: Collection[Shape]) -> list[str]:
    """The models as devices spell them."""
    found: list[str] = []
    problems = []
    for index, name in enumerate(spec.models):
        try:
            found.append(model_name(spec.device, name, shapes))
        except UnknownModelError as error:
            problems.append(Problem(f"spec.models[{index}]", str(error)))
    if problems:
        raise ClassRefusedError("UnknownModel", problems)
    return list(dict.fromkeys(found))


def check_possible(spec: ResourceClassSpec, models: Sequence[str], shapes: Collection[Shape]) -> None:
    """Refuse what no known hardware can be. Where the tables do not know the kind at all, nothing is refused."""
    candidates = [
        shape
        for shape in shapes
        if shape.kind == spec.device and shape.cut == CUTS[spec.cut] and (not models or shape.model in models)
    ]
    noun = "model" if spec.device == "gpu" else "shell"
    where = f"{noun} {models[0]}" if len(models) == 1 else f"the chosen {noun}s" if models else f"any known {noun}"
    for attribute, wanted in (("profile", spec.profile), ("function", spec.function)):
        if wanted is not None:
            known = {getattr(shape, attribute) for shape in candidates} - {""}
            candidates = [shape for shape in candidates if getattr(shape, attribute) == wanted]
            if not candidates:
                message = f'"{wanted}" is no {attribute} of {where}; {suggest(wanted, known, _SUGGESTIONS)}'
                raise ClassRefusedError(f"Unknown{attribute.capitalize()}", [Problem(f"spec.{attribute}", message)])
    if spec.minimum is not None:
        _check_minimum(spec, candidates, where)


def _check_minimum(spec: ResourceClassSpec, candidates: Sequence[Shape], where: str) -> None:
    minimums = list(minimum_sizes(spec))
    if any(all(shape.size(capacity) >= amount for _, capacity, amount in minimums) for shape in candidates):
        return
    problems = []
    for field, capacity, amount in minimums:
        largest = max(candidates, key=lambda shape: (shape.size(capacity), str(shape)), default=None)
        if largest is None or largest.size(capacity) < amount:
            most = largest_of(capacity, largest) if largest else "there is none"
            problems.append(Problem(field, f"{amount} is more than {where} can be cut to; {most}"))
    together = Problem("spec.minimum", f"no partition of {where} has all of this together")
    raise ClassRefusedError("MinimumTooLarge", problems or [together])
