"""From classic classes and templates to those of today: a ``kerf.dev`` ResourceClass, ``resource.k8s.io/v1``. Pure.

What a claim's parameters ask for becomes selectors and configuration of its request. What has no equivalent is said,
never left out silently.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from api.errors import InvalidDocumentError
from api.kerf.classic_parameters import (
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
)
from api.kerf.v1alpha1 import API_VERSION, FpgaConfig, GpuConfig, config_to_parameters
from api.model.base import JsonObject
from api.model.classic import ClassicClass, ClassicTemplate
from api.wire import to_builtins

V1: Final = "resource.k8s.io/v1"
REQUEST: Final = "device"
"""What the one request of a migrated claim is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """Documents to apply to the new cluster, and what somebody has to decide."""

    documents: tuple[JsonObject, ...]
    remarks: tuple[str, ...] = ()


def migrate_class(held: ClassicClass, offer: ClassParameters) -> Migrated:
    """A ResourceClass of ours with the parameters ``offer``."""
    name = held.metadata.name
    spec: JsonObject = {"device": "gpu" if isinstance(offer, GpuClassParametersSpec) else "fpga"}
    for field in ("cut", "profile", "minimum", "function", "sharing", "nodes"):
        value = getattr(offer, field, None)
        if value is not None:
            spec[field] = to_builtins(value)
    if offer.models:
        spec["models"] = list(offer.models)
    if isinstance(offer, FpgaClassParametersSpec) and (offer.release or offer.timeout_seconds):
        spec["config"] = _fpga_config(offer.release, offer.timeout_seconds)
    documents = [_resource_class(name, spec)]
    remarks = list(_class_remarks(name, held, offer))
    if isinstance(offer, GpuClassParametersSpec) and offer.allow_whole and offer.cut != "Whole":
        whole = {key: value for key, value in spec.items() if key not in {"profile", "minimum"}} | {"cut": "Whole"}
        documents.append(_resource_class(f"{name}-whole", whole))
    return Migrated(documents=tuple(documents), remarks=tuple(remarks))


def migrate_template(held: ClassicTemplate, wish: ClaimParameters | None) -> Migrated:
    """A ResourceClaimTemplate whose claims have the parameters ``wish``."""
    (request,) = held.spec.spec.requests
    whole = wish is not None and wish.cut == "Whole"
    exactly: JsonObject = {"deviceClassName": f"{request.class_name}-whole" if whole else request.class_name}
    devices: JsonObject = {"requests": [{"name": REQUEST, "exactly": exactly}]}
    if wish is not None:
        if wish.count > 1:
            exactly["count"] = wish.count
        selectors = [{"cel": {"expression": expression}} for expression in _selectors(wish)]
        if selectors:
            exactly["selectors"] = selectors
        parameters = _parameters(wish)
        if parameters is not None:
            opaque = {"driver": "kerf.dev", "parameters": parameters}
            devices["config"] = [{"requests": [REQUEST], "opaque": opaque}]
    metadata = {"name": held.metadata.name, "namespace": held.metadata.namespace}
    document = {
        "apiVersion": V1,
        "kind": "ResourceClaimTemplate",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"spec": {"devices": devices}},
    }
    return Migrated(documents=(document,), remarks=tuple(_template_remarks(held)))


def unreadable(subject: str, error: InvalidDocumentError | LookupError) -> Migrated:
    """What cannot be migrated before it is put right."""
    return Migrated(documents=(), remarks=(f"{subject}: left out: {error}",))


def _resource_class(name: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": API_VERSION, "kind": "ResourceClass", "metadata": {"name": name}, "spec": spec}


def _fpga_config(release: str | None, timeout_seconds: int | None) -> JsonObject:
    config = FpgaConfig(
        api_version=API_VERSION,
        release="Keep" if release == "Keep" else "Blank",
        timeout_seconds=timeout_seconds,
    )
    return config_to_parameters(config)


def _class_remarks(name: str, held: ClassicClass, offer: ClassParameters) -> Iterator[str]:
    subject = f"ResourceClass {name}"
    if held.suitable_nodes is not None:
        yield f"{subject}: suitableNodes has no equivalent: choose nodes by spec.nodes"
    if offer.max_pods < 32:
        yield f"{subject}: maxPods: {offer.max_pods} has no equivalent: every claim may be used by up to 256 pods"
    if offer.min_driver_version is not None:
        yield f"{subject}: minDriverVersion has no equivalent: choose nodes by spec.nodes"
    if offer.claims_may_override:
        yield f"{subject}: claimsMayOverride has no equivalent: a claim's configuration always comes after its class's"
    if isinstance(offer, GpuClassParametersSpec) and offer.monitor:
        yield f"{subject}: monitor: its claims need adminAccess, in a namespace that is labelled for it (KEP-5018)"
    if isinstance(offer, GpuClassParametersSpec) and offer.allow_whole:
        yield f"{subject}: allowWhole: whole cards have a class of their own, {name}-whole"


def _template_remarks(held: ClassicTemplate) -> Iterator[str]:
    if held.spec.spec.immediate:
        yield (
            f"ResourceClaimTemplate {held.ref}: allocationMode: Immediate has no equivalent: devices are allocated "
            "when a pod is scheduled"
        )


def _selectors(wish: ClaimParameters) -> Iterable[str]:
    """CEL over the attributes that Kerf publishes (``api.model.device_attributes``)."""
    if wish.models:
        models = ", ".join(f'"{model}"' for model in wish.models)
        yield f'device.attributes["kerf.dev"].model in [{models}]'
    if isinstance(wish, FpgaClaimParametersSpec):
        if wish.function is not None:
            yield f'device.attributes["kerf.dev"].function == "{wish.function}"'
        return
    if wish.profile is not None:
        yield f'device.attributes["kerf.dev"].profile == "{wish.profile}"'
    if wish.minimum is not None:
        amounts = {"memory": wish.minimum.memory, "computeSlices": wish.minimum.compute_slices}
        for name, amount in amounts.items():
            if amount is not None:
                yield f'device.capacity["kerf.dev"].{name}.compareTo(quantity("{amount}")) >= 0'


def _parameters(wish: ClaimParameters) -> JsonObject | None:
    if isinstance(wish, GpuClaimParametersSpec) and wish.sharing is not None:
        return config_to_parameters(GpuConfig(api_version=API_VERSION, sharing=wish.sharing))
    if isinstance(wish, FpgaClaimParametersSpec) and wish.release is not None:
        return _fpga_config(wish.release, None)
    return None
