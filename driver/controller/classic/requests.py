"""Whose a claim is, and what it asks for, from its class and parameters. Pure."""

from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Literal

import msgspec

from api.errors import InvalidDocumentError, PermanentError
from api.kerf.classic_parameters import (
    SPECS,
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    ParametersObject,
)
from api.kerf.decoder import decode_parameters, decode_parameters_object
from api.kerf.v1alpha1 import GROUP
from api.model.classic import MAX_CONSUMERS, ClassicClaim, ClassicClass, ClassicRequest, ParametersReference
from api.model.metadata import ObjectMeta
from api.model.names import ObjectRef
from driver.controller.classic.requirements import Ask, Asked, asked
from driver.controller.classic.state import World
from driver.controller.device_types import DeviceType, check_satisfiable, known_device_types, resolve_models

_DOCUMENT: Final = "parameters"
"""What complaints are about: the claim's and its class's, which are looked at together."""
_DOCUMENTS: Final = 1024
"""Remembered as they were read: every class, and those of claims that are tried again and again."""


class Ownership(Enum):
    """Who has to allocate a claim."""

    OURS = auto()
    OTHERS = auto()
    UNKNOWN = auto()
    """Its class is not there (yet)."""


class BadRequestError(PermanentError):
    """A claim cannot be understood. ``about`` is whose parameters are to blame."""

    def __init__(self, about: Literal["class", "claim"], message: str) -> None:
        self.about = about
        super().__init__(message)


def owner_of(claim: ClassicClaim, world: World) -> Ownership:
    """Until Kubernetes 1.30 the class says it, from 1.31 the claim."""
    if claim.spec.controller is not None:
        return Ownership.OURS if claim.spec.controller == world.driver else Ownership.OTHERS
    classes = [world.class_named(request.class_name) for request in claim.spec.requests]
    if any(class_ is None for class_ in classes):
        return Ownership.UNKNOWN
    ours = all(class_ and class_.driver_name == world.driver and not class_.structured for class_ in classes)
    return Ownership.OURS if ours and classes else Ownership.OTHERS


def requests_of(claim: ClassicClaim, world: World) -> tuple[Asked, ...]:
    """What a claim of ours asks for. Raises BadRequestError."""
    return tuple(_asked(claim, request, world) for request in claim.spec.requests)


def _asked(claim: ClassicClaim, request: ClassicRequest, world: World) -> Asked:
    class_ = world.class_named(request.class_name)
    if class_ is None:
        raise BadRequestError("claim", f"class {request.class_name} does not exist")
    if request.unsupported:
        fields = ", ".join(request.unsupported)
        raise BadRequestError("claim", f"request {request.name}: {fields}: a claim of {world.driver} cannot have it")
    wish = _wish(claim, request, world)
    offer = _offer(class_, wish, world)
    try:
        found = asked(request.name, offer, wish, driver=world.driver, count=request.count)
        return replace(found, ask=_satisfiable(found.ask, world.published))
    except InvalidDocumentError as error:
        raise BadRequestError("claim", str(error)) from error


@lru_cache(maxsize=1024)  # sets of wants in a cluster
def _satisfiable(ask: Ask, published: frozenset[DeviceType]) -> Ask:
    """``ask`` with its models as cards spell them. Raises UnsatisfiableError."""
    types = known_device_types(published)
    models = resolve_models(_DOCUMENT, ask.kind, ask.models, types)
    if not ask.whole:
        check_satisfiable(
            _DOCUMENT,
            types,
            kind=ask.kind,
            cut="partition",
            models=models,
            profile=ask.profile,
            function=ask.function,
            minimum=ask.minimum,
        )
    return replace(ask, models=tuple(models))


def _offer(class_: ClassicClass, wish: ClaimParameters | None, world: World) -> ClassParameters:
    """The class's parameters; a class without any offers everything of the kind that the claim asks for."""
    name = class_.metadata.name
    try:
        if class_.parameters_ref is not None:
            offer = _referred(class_.parameters_ref, "", world)
        elif world.driver in class_.parameters:
            offer = _opaque(msgspec.json.encode(class_.parameters[world.driver]), "spec.config.opaque.parameters")
        elif wish is not None:
            return GpuClassParametersSpec() if isinstance(wish, GpuClaimParametersSpec) else FpgaClassParametersSpec()
        else:
            raise BadRequestError("class", f"class {name} has no parameters, nor has the claim: say what is wanted")
    except (InvalidDocumentError, LookupError) as error:
        raise BadRequestError("class", f"class parameters of {name}: {error}") from error
    if not isinstance(offer, GpuClassParametersSpec | FpgaClassParametersSpec):
        raise BadRequestError("class", f"class parameters of {name}: they are parameters of claims")
    if 1 < offer.max_pods < MAX_CONSUMERS and not world.pods_can_be_limited:
        message = f"spec.maxPods: {offer.max_pods} needs Kubernetes 1.30; before, it can be 1 or {MAX_CONSUMERS}"
        raise BadRequestError("class", f"class parameters of {name}: {message}")
    return offer


def _wish(claim: ClassicClaim, request: ClassicRequest, world: World) -> ClaimParameters | None:
    try:
        if request.parameters_ref is not None:
            wish = _referred(request.parameters_ref, claim.metadata.namespace, world)
        elif request.parameters:
            wish = _opaque(msgspec.json.encode(request.parameters[-1]), "spec.devices.config.opaque.parameters")
        else:
            return None
    except (InvalidDocumentError, LookupError) as error:
        raise BadRequestError("claim", f"claim parameters: {error}") from error
    if not isinstance(wish, GpuClaimParametersSpec | FpgaClaimParametersSpec):
        raise BadRequestError("claim", "claim parameters: they are parameters of classes")
    return wish


def _referred(reference: ParametersReference, namespace: str, world: World) -> ClassParameters | ClaimParameters:
    """Raises LookupError and InvalidDocumentError."""
    where = f"parametersRef: {reference.kind} {reference.name}"
    if reference.api_group.partition("/")[0] != GROUP:
        raise LookupError(f'{where}: apiGroup is "{reference.api_group}", not {GROUP}')
    if reference.kind not in SPECS:
        raise LookupError(f"{where}: the kind is none of {', '.join(SPECS)}")
    held = world.caches.parameters[reference.kind].get(
        ObjectRef(namespace if "Claim" in reference.kind else "", reference.name)
    )
    if held is None:
        raise LookupError(f"{where} does not exist")
    return _spec(reference.kind, held.ref, msgspec.json.encode(held.spec))


@lru_cache(maxsize=_DOCUMENTS)
def _spec(kind: str, ref: ObjectRef, spec: bytes) -> ClassParameters | ClaimParameters:
    metadata = ObjectMeta(name=ref.name, namespace=ref.namespace)
    return decode_parameters_object(kind, ParametersObject(metadata=metadata, spec=msgspec.json.decode(spec)))


@lru_cache(maxsize=_DOCUMENTS)
def _opaque(document: bytes, path: str) -> ClassParameters | ClaimParameters:
    return decode_parameters(msgspec.json.decode(document), path)
