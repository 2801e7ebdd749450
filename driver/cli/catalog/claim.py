"""``kerf claim``: prints a claim template, or a claim, that asks for devices of a family by the family's own words.

A family is a subcommand, and its attributes and capacities are the options, so that families of third parties have
theirs. A device needs at least the capacity or the version that is asked for; any other attribute has to be equal. What
no model that the family knows can have is refused.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeAlias

import click
import yaml

from kerf_dra.api.errors import InvalidDocumentError, InvalidQuantityError, Problem
from kerf_dra.api.kerf.validation import suggest
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.semver import parse_version
from kerf_dra.api.resource.registry import VERSIONS, load_kinds
from kerf_dra.driver.cli.catalog.claim_notes import describe_near_sizes
from kerf_dra.driver.cli.options import SubdomainParameter
from kerf_dra.driver.cli.output import print_text
from kerf_dra.driver.controller.device_types import DeviceType, largest_of
from kerf_dra.driver.families import selectors
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.families.profile_names import describe_both_names, describe_other_names, find_profile_names
from kerf_dra.driver.families.registry import find_families, installed_families
from kerf_dra.driver.partitions.slice_limits import MAX_VALUE
from kerf_dra.driver.scheduling.size_notes import DeviceSize

_MAX_COUNT: Final = 32
"""The most devices of a claim (``AllocationResultsMaxSize`` of ``k8s.io/api/resource/v1``)."""
_MAX_NAME: Final = 63
"""The most characters of a name that is made from the options; the claims of pods get a suffix."""
_SUGGESTIONS: Final = 3
"""The number of similar values in a message: profiles of one kind differ in a digit between models."""
_LEAST_BYTES: Final = Quantity("1Mi")
"""Less memory than any device has: a request for less lacks its unit."""
_NOT_OFFERED: Final = frozenset({v.ATTRIBUTE_SHARED, v.ATTRIBUTE_LOADED_FUNCTION, v.ATTRIBUTE_UUID, v.ATTRIBUTE_NODE})
"""Attributes that are no properties to ask for: a class says who gets shares, what is loaded changes, and the others
name one card or one node. Standard attributes, which have a domain, are for constraints, and may be lists."""
_CUDA: Final = "cudaComputeCapability"
"""The attribute of families whose devices are for CUDA."""
_CUTS: Final = (v.CUT_PARTITION, v.CUT_WHOLE)
_TEMPLATE: Final = "template"
_CLAIM: Final = "claim"
_POD_FIELDS: Final = {_TEMPLATE: "resourceClaimTemplateName", _CLAIM: "resourceClaimName"}
"""The field of a pod's entry that names an object of each kind."""
_SAME_CARD: Final = "same-card"
_DISTINCT_CARDS: Final = "distinct-cards"
_WHERE: Final = {_SAME_CARD: " on one card", _DISTINCT_CARDS: " on different cards", "": ""}

_Value: TypeAlias = str | int | bool | Quantity


class _QuantityType(click.ParamType[Quantity]):
    name = "quantity"

    def convert(self, value: str | Quantity, param: click.Parameter | None, ctx: click.Context | None) -> Quantity:
        try:
            amount = Quantity(value) if isinstance(value, str) else value
        except InvalidQuantityError as error:
            self.fail(str(error), param, ctx)
        if amount <= Quantity(0):
            self.fail(f"{value} is not above zero", param, ctx)
        return amount


class _VersionType(click.ParamType[str]):
    name = "version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        version = parse_version(value, normalize=True)
        if version is None:
            self.fail(f"{value!r} is not a version such as 9.0", param, ctx)
        return str(version)


class _TextType(click.ParamType[str]):
    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.isprintable() or len(value.encode()) > MAX_VALUE:
            self.fail(
                f"no attribute has such a value: it has at most {MAX_VALUE} bytes of characters that show", param, ctx
            )
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """A word of a family's vocabulary, as an option."""

    name: str
    """The name of the attribute or capacity."""
    option: str
    """The option without the dashes before it, such as ``compute-slices``."""
    description: str
    type: click.ParamType[Any]
    is_minimum: bool = False
    """Whether a device may have more than what is asked for."""

    @property
    def parameter(self) -> str:
        """The name of the option's value, and the end of its environment variable."""
        return self.option.replace("-", "_")

    def build_option(self) -> click.Option:
        flags = f"--{self.option}/--no-{self.option}" if self.type is click.BOOL else f"--{self.option}"
        text = f"At least: {self.description}" if self.is_minimum else self.description
        return click.Option([flags, self.parameter], type=self.type, default=None, help=text, show_envvar=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A word with the value that is asked for."""

    word: _Word
    value: _Value

    def __str__(self) -> str:
        if self.value == "":
            return f"no {self.word.name} of its own"
        shown = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"{self.word.name}{' at least' if self.word.is_minimum else ''} {shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownDevice:
    """A device that the cards of a known model can have."""

    attributes: Mapping[str, object]
    type: DeviceType


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeviceWishes:
    """Everything that a claim asks for."""

    family: Family
    wishes: Sequence[_Wish]
    device_class: str
    count: int
    constraint: str
    """The option for which cards the devices are on, without the dashes; empty: any."""

    @property
    def default_name(self) -> str:
        """The family with the options that were given, such as ``gpu-memory-18gi-x2``."""
        words = [f"{wish.word.option}-{wish.value}" for wish in self.wishes if wish.value != ""]
        words += [f"x{self.count}"] if self.count > 1 else []
        name = re.sub(r"[^a-z0-9]+", "-", "-".join((self.family.name, *words)).lower())
        return name[:_MAX_NAME].strip("-")

    def build_document(self, kind: str, name: str, version: str) -> JsonObject:
        """Return the template or claim ``name`` in one version of ``resource.k8s.io``."""
        kinds = load_kinds(version)
        spec = ResourceClaimSpec(devices=self._build_devices())
        metadata = ObjectMeta(name=name)
        if kind == _CLAIM:
            return kinds.resource_claims.encode(ResourceClaim(metadata=metadata, spec=spec))
        template = ResourceClaimTemplate(metadata=metadata, spec=ResourceClaimTemplateSpec(spec=spec))
        return kinds.resource_claim_templates.encode(template)

    def build_pod(self, kind: str, name: str, image: str) -> JsonObject:
        """Return a pod whose only container has the devices of the template or claim ``name``."""
        entry = {"name": self.family.name, _POD_FIELDS[kind]: name}
        container = {"name": "main", "image": image, "resources": {"claims": [{"name": self.family.name}]}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "containers": [container], "resourceClaims": [entry]},
        }

    def find_notes(self) -> Iterator[str]:
        """Yield what is legal and hardly meant of the amounts and the number of devices."""
        known = [*_list_known_devices(self.family)]
        equal = {wish.word.name: wish.value for wish in self.wishes if not wish.word.is_minimum}
        for wish in self.wishes:
            if isinstance(wish.value, Quantity):
                matching = (
                    each
                    for each in known
                    if all(each.attributes.get(name, value) == value for name, value in equal.items())
                )
                sizes = (
                    DeviceSize(each.type.model, each.type.profile, each.type.size(wish.word.name)) for each in matching
                )
                yield from describe_near_sizes(wish.value, sizes)
        if self.count > 1 and equal.get(v.ATTRIBUTE_CUT) != v.CUT_WHOLE and _CUDA in self.family.attributes:
            yield (
                "a process that uses CUDA sees one MIG device, whatever its container has: run one process for each "
                "partition, each with its own CUDA_VISIBLE_DEVICES"
            )

    def explain(self, kind: str, name: str) -> Iterator[str]:
        """Yield the lines of a comment that says what the object asks for and how a pod uses it."""
        pods = "each pod" if kind == _TEMPLATE else "all pods that name it together"
        what = "the smallest free device" if self.count == 1 else f"{self.count} of the smallest free devices"
        where = _WHERE[self.constraint]
        yield f"For {pods}: {what} of {self.family.driver}{where}{' with' if self.wishes else ''}"
        yield from (f"  {wish}" for wish in self.wishes)
        field = _POD_FIELDS[kind]
        yield "In the pod:"
        yield "  resourceClaims:"
        entry = {"name": self.family.name, field: name}  # a name such as 123 or "on" needs quotes
        yield f"  - {yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10_000).strip()}"
        yield "  containers:"
        yield f"  - resources: {{claims: [{{name: {self.family.name}}}]}}"

    def _build_devices(self) -> DeviceClaim:
        family = self.family
        conditions = [_build_condition(family, wish) for wish in self.wishes]
        if conditions and self.device_class != family.driver:
            conditions.insert(0, selectors.of_driver(family))  # the class may have devices of other drivers, too
        request = ExactDeviceRequest(
            device_class_name=self.device_class,
            selectors=selectors.build_selectors(conditions),
            count=self.count if self.count > 1 else None,
        )
        uuid = f"{family.driver}/{v.ATTRIBUTE_UUID}"
        constraints = {
            _SAME_CARD: (DeviceConstraint(match_attribute=uuid),),
            _DISTINCT_CARDS: (DeviceConstraint(distinct_attribute=uuid),),
        }
        return DeviceClaim(
            requests=(DeviceRequest(name=family.name, exactly=request),),
            constraints=constraints.get(self.constraint, ()),
        )


class _FamilyCommands(click.Group):
    """One subcommand for each installed family."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(installed_families())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        family = installed_families().get(cmd_name)
        return None if family is None else _build_command(family)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the family's command. Raises FamilyUnavailableError for an unknown family, with a suggestion."""
        if not args[0].startswith("-"):
            find_families(args[:1], installed_families())
        return super().resolve_command(ctx, args)


@click.command(
    cls=_FamilyCommands,
    short_help="Print a claim template for devices of a size of your own.",
    subcommand_metavar="FAMILY [OPTIONS]",
)
def command() -> None:
    """Print a claim template for devices of a size of your own, for `kubectl apply -f -`.

    The options are the attributes and capacities of the family: `kerf claim gpu --help` lists them.
    """


def _build_command(family: Family) -> click.Command:
    general = [
        click.Option(
            ["--count"], type=click.IntRange(1, _MAX_COUNT), default=1, show_envvar=True, help="Number of devices."
        ),
        click.Option(["--same-card"], is_flag=True, show_envvar=True, help="All devices are on one card."),
        click.Option(
            ["--distinct-cards"],
            is_flag=True,
            show_envvar=True,
            help="Each device is on a card of its own (feature gate DRAConsumableCapacity, on from Kubernetes 1.36).",
        ),
        click.Option(
            ["--class", "device_class"],
            type=SubdomainParameter(),
            show_envvar=True,
            help=f"The DeviceClass, or ResourceClass, to choose from. [default: {family.driver}]",
        ),
        click.Option(
            ["--kind"],
            type=click.Choice([_TEMPLATE, _CLAIM]),
            default=_TEMPLATE,
            show_envvar=True,
            help="A template gives each pod a claim; pods that name one claim share its devices.",
        ),
        click.Option(
            ["--name"],
            type=SubdomainParameter(),
            show_envvar=True,
            help="Name of the object. [default: made from the options]",
        ),
        click.Option(
            ["--pod", "image"],
            metavar="IMAGE",
            show_envvar=True,
            help="Also print a pod that has the devices, with a container of this image.",
        ),
        click.Option(
            ["--api-version"],
            type=click.Choice(VERSIONS),
            default=VERSIONS[0],
            show_envvar=True,
            help="Version of resource.k8s.io: v1 from Kubernetes 1.34 on.",
        ),
        click.Option(
            ["-o", "--output"], type=click.Choice(["yaml", "json"]), default="yaml", show_envvar=True, help="Format."
        ),
    ]
    reserved = {name.lstrip("-") for each in general for name in (*each.opts, each.name or "")} | {"help"}
    words = {word.parameter: word for word in _list_words(family, reserved)}

    def print_claim(
        count: int,
        same_card: bool,
        distinct_cards: bool,
        device_class: str | None,
        kind: str,
        name: str | None,
        image: str | None,
        api_version: str,
        output: str,
        **values: _Value | None,
    ) -> None:
        if same_card and distinct_cards:
            raise click.UsageError("--same-card and --distinct-cards exclude each other: give one of them")
        given = {key: value for key, value in values.items() if value is not None}
        constraint = _SAME_CARD if same_card else _DISTINCT_CARDS if distinct_cards else ""
        wishes = [_Wish(word=word, value=given[key]) for key, word in words.items() if key in given]
        claim = _DeviceWishes(
            family=family,
            wishes=_resolve_wishes(family, wishes, words.values(), is_own_class=device_class is None),
            device_class=device_class or family.driver,
            count=count,
            constraint=constraint if count > 1 else "",
        )
        name = name or claim.default_name
        documents = [claim.build_document(kind, name, api_version)]
        if image is not None:
            documents.append(claim.build_pod(kind, name, image))
        for note in claim.find_notes():
            print_text(f"note: {note}", err=True)
        if output == "json":
            whole = documents[0] if image is None else {"apiVersion": "v1", "kind": "List", "items": documents}
            click.echo(json.dumps(whole, indent=2, ensure_ascii=False))
            return
        click.echo("".join(f"# {line}\n" for line in claim.explain(kind, name)), nl=False)
        # No expression is wrapped: in one line it is easier to read and to change.
        click.echo(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=10_000), nl=False)

    return click.Command(
        name=family.name,
        callback=print_claim,
        params=[*(word.build_option() for word in words.values()), *general],
        short_help=f"Devices of {family.driver}.",
        help=f"Print a claim template for devices of {family.driver} that have all that the options say.",
    )


def _list_words(family: Family, reserved: Iterable[str]) -> Iterator[_Word]:
    """Yield the words of ``family``; one that is ``reserved``, or another word, has the family's name before it."""
    taken = {name.replace("_", "-") for name in reserved}

    def option_of(name: str) -> str:
        option = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name.replace("_", "-")).lower()
        while option in taken or f"no-{option}" in taken:
            option = f"{family.name}-{option}"
        taken.update((option, f"no-{option}"))
        return option

    for name, description in family.capacities.items():
        yield _Word(name=name, option=option_of(name), description=description, type=_QuantityType(), is_minimum=True)
    for name, attribute in family.attributes.items():
        if name in _NOT_OFFERED or "/" in name:
            continue
        is_version = attribute.neutral.version is not None
        if (type_ := _choose_type(name, attribute.neutral)) is not None:
            yield _Word(
                name=name, option=option_of(name), description=attribute.description, type=type_, is_minimum=is_version
            )


def _choose_type(name: str, neutral: Attribute) -> click.ParamType[Any] | None:
    """Return the type of an attribute's option; None for a number: no request is for exactly the seconds of a load."""
    if name == v.ATTRIBUTE_CUT:
        return click.Choice(_CUTS)
    if neutral.version is not None:
        return _VersionType()
    return {bool: click.BOOL, str: _TextType()}.get(type(neutral.value))


def _build_condition(family: Family, wish: _Wish) -> str:
    name, value = wish.word.name, wish.value
    if isinstance(value, Quantity):
        return selectors.capacity_at_least(family, name, value)
    if wish.word.is_minimum:
        return selectors.version_at_least(family, name, str(value))
    if name == v.ATTRIBUTE_PROFILE and len(names := find_profile_names(family, str(value), ())) > 1:
        return selectors.attribute_is_one_of(family, name, names)
    return selectors.attribute_is(family, name, value)


def _resolve_wishes(
    family: Family, wishes: Sequence[_Wish], words: Iterable[_Word], *, is_own_class: bool
) -> Sequence[_Wish]:
    """Return ``wishes`` as devices spell them. Raises InvalidDocumentError for what no known model has.

    From the family's own class a claim that names no function gets none: one that is loaded already comes first in the
    publish order. Another class says itself which functions its claims get.
    """
    document = f"kerf claim {family.name}"
    resolved = []
    for wish in wishes:
        try:
            is_model = wish.word.name == v.ATTRIBUTE_MODEL and any(family.geometries())
            resolved.append(replace(wish, value=family.resolve_model(str(wish.value))) if is_model else wish)
        except UnknownModelError as error:
            raise InvalidDocumentError(document, [Problem(f"--{wish.word.option}", str(error))]) from error
    function = next((word for word in words if word.name == v.ATTRIBUTE_FUNCTION), None)
    if is_own_class and function is not None and all(wish.word is not function for wish in resolved):
        resolved.append(_Wish(word=function, value=""))
    if problems := list(_find_impossible(family, resolved)):
        raise InvalidDocumentError(document, problems)
    return resolved


def _find_impossible(family: Family, wishes: Sequence[_Wish]) -> Iterator[Problem]:
    """Yield a problem for the first attribute that no known device has, else for each amount that cannot be."""
    candidates = list(_list_known_devices(family))
    chosen: list[str] = []
    for wish in sorted(wishes, key=lambda wish: wish.word.name != v.ATTRIBUTE_MODEL):
        name, value = wish.word.name, wish.value
        known = {str(each.attributes[name]) for each in candidates if name in each.attributes}
        if not known or wish.word.is_minimum:
            continue  # only nodes know it
        wanted = find_profile_names(family, str(value), ()) if name == v.ATTRIBUTE_PROFILE else (value,)
        candidates = [each for each in candidates if each.attributes.get(name) in wanted]
        if not candidates:
            others = describe_other_names(family) if name == v.ATTRIBUTE_PROFILE else {}
            advice = suggest(str(value), {*known, *chain(*others.values())} - {""}, _SUGGESTIONS)
            advice += describe_both_names(advice, others)
            none = _known(chosen).replace("any ", "no ", 1)
            yield Problem(f"--{wish.word.option}", f'{none} has the {name} "{value}"; {advice}')
            return
        chosen.append(str(wish))
    if candidates:
        yield from _check_amounts(wishes, [each.type for each in candidates], _known(chosen))


def _check_amounts(wishes: Sequence[_Wish], types: Sequence[DeviceType], which: str) -> list[Problem]:
    """Return a problem for each amount of which none of ``types`` has enough, or one if none has all together."""
    amounts = {wish.word: wish.value for wish in wishes if isinstance(wish.value, Quantity)}
    problems = []
    for word, least in amounts.items():
        largest = max(types, key=lambda type_: (type_.size(word.name), str(type_)))
        if least < _LEAST_BYTES and largest.size(word.name).family == "binary":
            example = f"{max(int(least), 1)}Gi"
            problems.append(Problem(f"--{word.option}", f"{least} counts bytes: write a unit, such as {example}"))
        elif largest.size(word.name) < least:
            message = f"{least} is more than {which} has; {largest_of(word.name, largest)}"
            problems.append(Problem(f"--{word.option}", message))
    if not problems and not any(all(type_.size(w.name) >= least for w, least in amounts.items()) for type_ in types):
        options = ", ".join(f"--{word.option}" for word in amounts)
        problems.append(Problem(options, f"this is more than {which} has together"))
    return problems


def _known(chosen: Sequence[str]) -> str:
    return f"any known device with {' and '.join(chosen)}" if chosen else "any known device"


def _list_known_devices(family: Family) -> Iterator[_KnownDevice]:
    for geometry in family.geometries():
        of_model = {name: attribute.value for name, attribute in geometry.attributes}
        for spec in geometry.specs:
            values = {
                v.ATTRIBUTE_CUT: v.CUT_PARTITION if spec.placement else v.CUT_WHOLE,
                v.ATTRIBUTE_MODEL: geometry.model,
                v.ATTRIBUTE_PROFILE: spec.profile or "",
                v.ATTRIBUTE_FUNCTION: spec.function or "",
            }
            type_ = DeviceType(kind=family.name, sizes=spec.capacity, **values)
            own = {name: value for name, value in values.items() if name in family.attributes}
            yield _KnownDevice(attributes={**own, **of_model}, type=type_)
