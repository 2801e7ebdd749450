"""``kerf models``: the models of cards that the installed families know, and where their figures come from."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import click

from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.cli.catalog.model_table import describe_partitions
from kerf_dra.driver.cli.output import OutputFormat, format_table, output_formats, print_document
from kerf_dra.driver.families.base import EVERY, WHOLE, Estimate, ModelFigures
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.partitions.geometry import Geometry, Placement

_WIDTH: Final = 80
_ATTRIBUTES: Final = {"productName": "Product", "architecture": "Architecture"}
"""Attributes of the whole model that are shown, with their labels."""
_PLACES: Final[Mapping[tuple[str, ...], str]] = {(EVERY,): "", (WHOLE,): " of the whole card"}
"""Parts that are not shown by their names."""
_UNKNOWN: Final = ModelFigures(estimated=(Estimate(part=EVERY, figure=EVERY, how="its family does not say"),))
"""The figures of a model whose family says nothing of them."""


class _Model(NamedTuple):
    geometry: Geometry
    figures: ModelFigures


@click.command(short_help="List the models of cards that Kerf knows.")
@click.argument("model", required=False, shell_complete=lambda *words: complete_models(words[-1]))
@output_formats("text", "wide", "json", "yaml", "name")
def command(model: str | None, output: OutputFormat) -> None:
    """List the models of cards that the installed families know.

    ESTIMATED are the figures that no source gives, of some or all of a model's partitions. With MODEL: its partitions
    or functions with their sizes, how many a card has of each and the largest request for memory that takes it; the
    sources of all other figures, and how each was estimated. A backend that can ask a card takes the
    card's own figures.
    """
    models = {name: known for name, known in _read_models().items() if known}
    if model is not None:
        models = _select(models, model)
    if output == "name":
        click.echo("\n".join(one.geometry.model for known in models.values() for one in known))
    elif output not in ("text", "wide"):
        print_document({name: [_to_document(one) for one in known] for name, known in models.items()}, output)
    elif model is not None:
        click.echo("\n\n".join(_describe(one) for known in models.values() for one in known))
    else:
        is_wide = output == "wide"
        click.echo("\n\n".join(_list(name, known, is_wide=is_wide) for name, known in models.items()))


def complete_models(incomplete: str) -> list[str]:
    """Return the names of models that begin with ``incomplete``, for shells."""
    every = (one.model for family in installed_families().values() for one in family.geometries())
    return [name for name in every if name.startswith(incomplete)]


def _read_models() -> dict[str, list[_Model]]:
    """Return the known models by family."""
    found: dict[str, list[_Model]] = {}
    for family in installed_families().values():
        figures = family.figures()
        found[family.name] = [_Model(one, figures.get(one.model, _UNKNOWN)) for one in family.geometries()]
    return found


def _select(models: Mapping[str, list[_Model]], name: str) -> dict[str, list[_Model]]:
    """Return the model with this name or alias. Raises UnknownModelError when no family has it."""
    families = installed_families()
    close: list[str] = []
    for family, known in models.items():
        try:
            resolved = families[family].resolve_model(name)
        except UnknownModelError as error:
            close += error.close
            continue
        if found := [one for one in known if one.geometry.model == resolved]:
            return {family: found}
    raise UnknownModelError("model", name, close)


def _to_document(model: _Model) -> Mapping[str, object]:
    document: dict[str, Any] = to_builtins(model.geometry)
    for spec in document["specs"]:
        placement = None if spec["placement"] is None else Placement(*spec["placement"])
        if placement is not None and placement.run is not None:
            spec["placement"] = placement.run  # as it is where no model has layouts or gaps
    return {**document, "figures": to_builtins(model.figures)}


def _list(family: str, models: Iterable[_Model], *, is_wide: bool) -> str:
    header = (f"{family.upper()} MODEL", "UNITS", "ESTIMATED", *(("PARTITIONS",) if is_wide else ()))
    return format_table(header, (_row(model, is_wide=is_wide) for model in models))


def _row(model: _Model, *, is_wide: bool) -> tuple[object, ...]:
    kinds = dict.fromkeys(_kind(one.figure) for one in model.figures.estimated if one.part != WHOLE)
    parts = (", ".join(_list_parts(model.geometry)),) if is_wide else ()
    return (model.geometry.model, model.geometry.units, ", ".join(kinds) or "-", *parts)


def _list_parts(geometry: Geometry) -> list[str]:
    """Return the names of a model's profiles or functions, each once."""
    return [name for name in dict.fromkeys(spec.profile or spec.function for spec in geometry.specs) if name]


def _kind(figure: str) -> str:
    """Return the figure in a word of the list."""
    if figure == EVERY:
        return "every figure"
    return figure if figure in ("placements", "memory", "multiprocessors") else "engines"


def _describe(model: _Model) -> str:
    geometry, figures = model
    attributes = {name: attribute.value for name, attribute in geometry.attributes}
    lines = [
        f"Model:        {geometry.model} ({geometry.kind})",
        *(f"{label + ':':<14}{attributes[key]}" for key, label in _ATTRIBUTES.items() if attributes.get(key)),
        f"Units:        {geometry.units} ({geometry.unit})",
        "",
        *describe_partitions(geometry),
    ]
    if figures.sources:
        lines += ["", "Sources:", *(line for source in figures.sources for line in _wrap("- ", source))]
    if figures.estimated:
        lines += ["", "Estimated:", *(line for text in _group(figures) for line in _wrap("- ", text))]
    return "\n".join(lines)


def _group(figures: ModelFigures) -> Iterator[str]:
    """Yield a sentence for each rule, with the figures and the parts that it is for."""
    parts: dict[tuple[str, str], list[str]] = {}
    for one in figures.estimated:
        parts.setdefault((one.how, one.figure), []).append(one.part)
    kinds: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (how, figure), names in parts.items():
        kinds.setdefault((how, tuple(names)), []).append("every figure" if figure == EVERY else figure)
    for (how, where), what in kinds.items():
        place = _PLACES.get(where, f" of {', '.join(where)}")
        yield f"{', '.join(what)}{place}: {how}"


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label))
