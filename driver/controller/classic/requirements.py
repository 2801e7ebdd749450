"""Resolves the requirements of each request of a claim from its class and the parameters of both. Pure.

Parameters are merged by these rules: a field that the class sets, the claim may set only where the class lists it
in ``claimsMayOverride``; a field that the class leaves unset, the claim may set. A claim gets whole cards only where
the class allows it. Requirements that no known device could meet are rejected here, not searched for.

Example: a class with ``minimum: {memory: 10Gi}`` and ``claimsMayOverride: [size]``, and a claim with
``profile: 3g.40gb``, require a partition of the profile 3g.40gb.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, PermanentError, Problem
from kerf_dra.api.kerf.classic_parameters import (
    SPECS,
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    GpuMinimum,
    ParametersObject,
)
from kerf_dra.api.kerf.decoder import decode_parameters, decode_parameters_object
from kerf_dra.api.kerf.v1alpha1 import API_VERSION, GROUP, FpgaConfig, GpuConfig, NodeChoice, config_to_parameters
from kerf_dra.api.model.allocations import ConfigSource, DeviceAllocationConfiguration, OpaqueAllocationConfiguration
from kerf_dra.api.model.classic import MAX_CONSUMERS, ClassicClaim, ClassicClass, ClassicRequest, ParametersReference
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.semver import version_numbers
from kerf_dra.driver.controller.classic.placement import DeviceRequirements
from kerf_dra.driver.controller.classic.state import ClusterView
from kerf_dra.driver.controller.device_types import (
    DeviceType,
    check_satisfiable,
    known_device_types,
    profile_names,
    resolve_models,
)
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.registry import BUILT_IN_BY_DRIVER, BUILT_IN_BY_NAME

_DOCUMENT: Final = "parameters"
"""The document name in messages: the parameters of a class and of a claim are checked together."""
_DOCUMENTS: Final = 1024
"""The most decoded documents kept: those of every class, and of claims that are retried repeatedly."""
_CLAIM_SPECS: Final[dict[type[ClassParameters], type[ClaimParameters]]] = {
    GpuClassParametersSpec: GpuClaimParametersSpec,
    FpgaClassParametersSpec: FpgaClaimParametersSpec,
}
_SIZE: Final = frozenset({"cut", "profile", "minimum"})
"""The fields that ``claimsMayOverride: [size]`` stands for."""
_Config: TypeAlias = tuple[ConfigSource, GpuConfig | FpgaConfig] | None


class Ownership(Enum):
    """The controller that has to allocate a claim."""

    OURS = auto()
    OTHERS = auto()
    UNKNOWN = auto()
    """The claim's class does not exist (yet)."""


class InvalidRequirementsError(PermanentError):
    """The requirements of a claim cannot be resolved; ``about`` says whose parameters have to be corrected."""

    def __init__(self, about: Literal["class", "claim"], message: str) -> None:
        self.about = about
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRequirements:
    """The requirements of one request of a claim, with all other settings of its allocation."""

    name: str
    """The request's name; empty until Kubernetes 1.30."""
    device: DeviceRequirements
    """The requirements for each of its devices."""
    count: int
    """The number of devices that it requests."""
    nodes: NodeChoice | None
    """The nodes that its class chooses; None: all."""
    max_pods: int
    """The number of pods that may use the claim at a time."""
    config: tuple[DeviceAllocationConfiguration, ...]


def ownership_of(claim: ClassicClaim, view: ClusterView) -> Ownership:
    """Return who allocates a claim: until Kubernetes 1.30 its class names the driver, from 1.31 it names one itself."""
    if claim.spec.controller is not None:
        return Ownership.OURS if claim.spec.controller in BUILT_IN_BY_DRIVER else Ownership.OTHERS
    classes = [view.class_named(request.class_name) for request in claim.spec.requests]
    if any(class_ is None for class_ in classes):
        return Ownership.UNKNOWN
    ours = all(class_ and class_.driver_name in BUILT_IN_BY_DRIVER and not class_.structured for class_ in classes)
    return Ownership.OURS if ours and classes else Ownership.OTHERS


def resolve_requirements(claim: ClassicClaim, view: ClusterView) -> tuple[RequestRequirements, ...]:
    """Resolve the requirements of each request of a claim that this controller allocates.

    Raises InvalidRequirementsError when the class or parameters do not exist or are invalid, when the claim sets what
    its class does not allow, and when no known device could meet the requirements.
    """
    return tuple(_resolve(claim, request, view) for request in claim.spec.requests)


def _resolve(claim: ClassicClaim, request: ClassicRequest, view: ClusterView) -> RequestRequirements:
    class_ = view.class_named(request.class_name)
    if class_ is None:
        raise InvalidRequirementsError("claim", f"class {request.class_name} does not exist")
    if request.unsupported:
        message = f"request {request.name}: {', '.join(request.unsupported)}: a claim of Kerf cannot have it"
        raise InvalidRequirementsError("claim", message)
    claim_spec = _claim_spec(claim, request, view)
    class_spec = _class_spec(class_, claim_spec, view)
    driver = (GPU if isinstance(class_spec, GpuClassParametersSpec) else FPGA).driver
    if class_.driver_name not in ("", driver):
        message = f"class {class_.metadata.name} has driverName {class_.driver_name}, its parameters are for {driver}"
        raise InvalidRequirementsError("class", message)
    try:
        merged = merge_parameters(request.name, class_spec, claim_spec, driver=driver, count=request.count)
        return replace(merged, device=_satisfiable(merged.device, view.published))
    except InvalidDocumentError as error:
        raise InvalidRequirementsError("claim", str(error)) from error


def merge_parameters(
    name: str, class_spec: ClassParameters, claim_spec: ClaimParameters | None, *, driver: str, count: int = 1
) -> RequestRequirements:
    """Merge the parameters of class and claim to the requirements of the request ``name``.

    ``count`` is the request's own, from Kubernetes 1.31; that of the parameters is multiplied by it. Raises
    InvalidDocumentError when the claim's parameters are of another kind than the class's, set what the class does not
    allow, or omit a required field.
    """
    expected = _CLAIM_SPECS[type(class_spec)]
    if claim_spec is not None and not isinstance(claim_spec, expected):
        other = "GPUs" if expected is GpuClaimParametersSpec else "FPGAs"
        raise InvalidDocumentError("claim parameters", [Problem("kind", f"does not fit a class of {other}")])
    claim_spec = claim_spec or expected()
    if problems := tuple(_forbidden(class_spec, claim_spec)):
        raise InvalidDocumentError("claim parameters", problems)
    if isinstance(class_spec, GpuClassParametersSpec):
        assert isinstance(claim_spec, GpuClaimParametersSpec)
        device, config = _gpu(class_spec, claim_spec), _gpu_config(class_spec, claim_spec)
    else:
        assert isinstance(claim_spec, FpgaClaimParametersSpec)
        device, config = _fpga(class_spec, claim_spec), _fpga_config(class_spec, claim_spec)
    device = replace(
        device,
        driver_version=version_numbers(class_spec.min_driver_version or ""),
        abilities=frozenset(config[1].required_attributes if config is not None else ()),
    )
    return RequestRequirements(
        name=name,
        device=device,
        count=count * claim_spec.count,
        nodes=class_spec.nodes,
        max_pods=class_spec.max_pods,
        config=tuple(_config_entries(config, name, driver)),
    )


def _forbidden(class_spec: ClassParameters, claim_spec: ClaimParameters) -> Iterator[Problem]:
    """Yield a problem for each field that the claim sets although the class does not allow it."""
    for field in claim_spec.__struct_fields__:
        value = getattr(claim_spec, field)
        if value in (None, ()) or field == "count":
            continue
        topic = "size" if field in _SIZE else field
        if getattr(class_spec, "monitor", False):
            yield Problem(f"spec.{field}", "the class is for monitoring: its claims request nothing")
        elif topic in class_spec.claims_may_override:
            continue
        elif value == "Whole":
            if class_spec.cut != "Whole" and not getattr(class_spec, "allow_whole", False):
                yield Problem("spec.cut", "the class does not allow whole cards")
        elif _is_set(class_spec, topic):
            yield Problem(f"spec.{field}", f"is set by the class, which does not list {topic} in claimsMayOverride")


def _is_set(class_spec: ClassParameters, topic: str) -> bool:
    if topic == "size":
        return any(getattr(class_spec, name, None) not in (None, "Partition") for name in _SIZE)
    return getattr(class_spec, topic) not in (None, ())


def _gpu(class_spec: GpuClassParametersSpec, claim_spec: GpuClaimParametersSpec) -> DeviceRequirements:
    models = claim_spec.models or class_spec.models
    if class_spec.monitor:
        return DeviceRequirements(kind=GPU.name, models=models, partition=False, whole=True, monitor=True)
    claim_sets_size = (claim_spec.cut, claim_spec.profile, claim_spec.minimum) != (None, None, None)
    size = claim_spec if claim_sets_size else class_spec
    if size.cut == "Whole":
        return DeviceRequirements(kind=GPU.name, models=models, partition=False, whole=True)
    minimum = size.minimum or GpuMinimum()
    return DeviceRequirements(
        kind=GPU.name,
        models=models,
        whole=class_spec.allow_whole and size.profile is None,
        profile=size.profile,
        memory_bytes=int(minimum.memory or 0),
        compute_slices=minimum.compute_slices or 0,
    )


def _fpga(class_spec: FpgaClassParametersSpec, claim_spec: FpgaClaimParametersSpec) -> DeviceRequirements:
    models, whole = claim_spec.models or class_spec.models, (claim_spec.cut or class_spec.cut) == "Whole"
    function = None if whole else claim_spec.function or class_spec.function
    if function is None and not whole:
        message = "is required: the class names no function, so the claim has to"
        raise InvalidDocumentError("claim parameters", [Problem("spec.function", message)])
    return DeviceRequirements(kind=FPGA.name, models=models, partition=not whole, whole=whole, function=function)


def _gpu_config(class_spec: GpuClassParametersSpec, claim_spec: GpuClaimParametersSpec) -> _Config:
    if claim_spec.sharing is not None:
        return "FromClaim", GpuConfig(api_version=API_VERSION, sharing=claim_spec.sharing)
    if class_spec.sharing is not None:
        return "FromClass", GpuConfig(api_version=API_VERSION, sharing=class_spec.sharing)
    return None


def _fpga_config(class_spec: FpgaClassParametersSpec, claim_spec: FpgaClaimParametersSpec) -> _Config:
    release, timeout_seconds = claim_spec.release or class_spec.release, class_spec.timeout_seconds
    if release is None and timeout_seconds is None:
        return None
    config = FpgaConfig(api_version=API_VERSION, release=release or "Blank", timeout_seconds=timeout_seconds)
    return ("FromClaim" if claim_spec.release else "FromClass"), config


def _config_entries(config: _Config, request: str, driver: str) -> Iterator[DeviceAllocationConfiguration]:
    if config is not None:
        source, value = config
        opaque = OpaqueAllocationConfiguration(driver=driver, parameters=config_to_parameters(value))
        requests = (request,) if request else ()
        yield DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


@lru_cache(maxsize=1024)  # sets of requirements in a cluster
def _satisfiable(device: DeviceRequirements, published: frozenset[DeviceType]) -> DeviceRequirements:
    """Return ``device`` with its models as cards spell them. Raises UnsatisfiableError when no known device fits."""
    types = known_device_types(published)
    family = BUILT_IN_BY_NAME[device.kind]
    models = resolve_models(_DOCUMENT, family, device.models, types)
    check_satisfiable(
        _DOCUMENT,
        types,
        kind=device.kind,
        cuts=[cut for cut, is_accepted in (("partition", device.partition), ("whole", device.whole)) if is_accepted],
        models=models,
        profile=device.profile,
        function=device.function,
        minimum=device.minimum,
    )
    names = profile_names(family, device.profile, types, models) if device.profile is not None else ()
    return replace(device, models=tuple(models), profile_names=names)


def _class_spec(class_: ClassicClass, claim_spec: ClaimParameters | None, view: ClusterView) -> ClassParameters:
    """The class's parameters; without any, the class allows all devices of the kind of the claim's parameters."""
    subject = f"class parameters of {class_.metadata.name}"
    try:
        if class_.parameters_ref is not None:
            found = _referenced(class_.parameters_ref, "", view)
        elif own := [class_.parameters[driver] for driver in BUILT_IN_BY_DRIVER if driver in class_.parameters]:
            found = _opaque(msgspec.json.encode(own[0]), "spec.config.opaque.parameters")
        elif claim_spec is not None:
            return next(class_type() for class_type, of in _CLAIM_SPECS.items() if isinstance(claim_spec, of))
        else:
            message = f"neither class {class_.metadata.name} nor the claim has parameters: one of them must have them"
            raise InvalidRequirementsError("class", message)
    except (InvalidDocumentError, LookupError) as error:
        raise InvalidRequirementsError("class", f"{subject}: {error}") from error
    if not isinstance(found, GpuClassParametersSpec | FpgaClassParametersSpec):
        raise InvalidRequirementsError("class", f"{subject}: these are parameters for claims")
    if 1 < found.max_pods < MAX_CONSUMERS and not view.pods_can_be_limited:
        message = f"spec.maxPods: {found.max_pods} needs Kubernetes 1.30; before, it can be 1 or {MAX_CONSUMERS}"
        raise InvalidRequirementsError("class", f"{subject}: {message}")
    return found


def _claim_spec(claim: ClassicClaim, request: ClassicRequest, view: ClusterView) -> ClaimParameters | None:
    try:
        if request.parameters_ref is not None:
            found = _referenced(request.parameters_ref, claim.metadata.namespace, view)
        elif request.parameters:
            found = _opaque(msgspec.json.encode(request.parameters[-1]), "spec.devices.config.opaque.parameters")
        else:
            return None
    except (InvalidDocumentError, LookupError) as error:
        raise InvalidRequirementsError("claim", f"claim parameters: {error}") from error
    if not isinstance(found, GpuClaimParametersSpec | FpgaClaimParametersSpec):
        raise InvalidRequirementsError("claim", "claim parameters: these are parameters for classes")
    return found


def _referenced(reference: ParametersReference, namespace: str, view: ClusterView) -> ClassParameters | ClaimParameters:
    """Return the spec of the parameters object of a reference.

    Raises LookupError when its group or kind is unknown or it does not exist, InvalidDocumentError when it is invalid.
    """
    where = f"parametersRef: {reference.kind} {reference.name}"
    if reference.api_group.partition("/")[0] != GROUP:
        raise LookupError(f'{where}: apiGroup is "{reference.api_group}", not {GROUP}')
    if reference.kind not in SPECS:
        raise LookupError(f"{where}: the kind is not one of {', '.join(SPECS)}")
    ref = ObjectRef(namespace if "Claim" in reference.kind else "", reference.name)
    held = view.stores.parameters[reference.kind].get(ref)
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
