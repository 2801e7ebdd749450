"""The rules on several fields of a document: one table for the decoder and for the CRDs.

Each rule has two forms: ``holds`` in Python for documents that Kerf decodes, ``cel`` for the API server
(``x-kubernetes-validations``). Tests compare the two on generated documents.

Rules of families have the form for the API server only, so that it refuses obvious mistakes about Kerf's own families
when a class is applied; the whole of them, for every family, is ``kerf_dra.driver.families.class_validation``.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kerf_dra.api.errors import Problem
from kerf_dra.api.kerf.card_maintenance import CardMaintenanceSpec
from kerf_dra.api.kerf.classic_parameters import (
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    GpuMinimum,
)
from kerf_dra.api.kerf.discovery_objects import CONFIGURATION_NAME, DiscoveredDeviceSpec, DiscoveryConfiguration
from kerf_dra.api.kerf.fpga_objects import FpgaFile, FpgaLayout, FpgaShellSpec
from kerf_dra.api.kerf.v1alpha1 import (
    ClassToleration,
    DevicePluginOffer,
    GpuSharing,
    NodeLabelRequirement,
    ResourceClassSpec,
)
from kerf_dra.api.kerf.validation import join_path

_FIELD: Final = re.compile(r"self\.(\w+(?:\.\w+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """A rule on a struct: if it does not hold, ``message`` is reported for ``field`` (JSON path; empty: the struct)."""

    field: str
    message: str
    cel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFieldRule(ServerRule):
    """A rule that Kerf evaluates, too."""

    holds: Callable[[Any], bool]

    @property
    def reads(self) -> Collection[str]:
        """The JSON paths of the fields that the rule reads."""
        fields = set(_FIELD.findall(self.cel))
        return {field for field in fields if not any(other.startswith(f"{field}.") for other in fields)}


def _not_for(device: str, field: str) -> ServerRule:
    return ServerRule(
        field=field, message=f"is not for device: {device}", cel=f"self.device != '{device}' || !has(self.{field})"
    )


def _only_minimums_for(device: str, *capacities: str) -> ServerRule:
    return ServerRule(
        field="minimum",
        message=f"of device: {device} may have {' and '.join(capacities)} only",
        cel=(
            f"self.device != '{device}' || !has(self.minimum)"
            f" || self.minimum.all(name, name in [{', '.join(map(repr, capacities))}])"
        ),
    )


def _only_config_for(device: str, kind: str) -> ServerRule:
    return ServerRule(
        field="config.kind",
        message=f"must be {kind} for device: {device}",
        cel=f"self.device != '{device}' || !has(self.config) || self.config.kind == '{kind}'",
    )


def _is_strategy_or_unset(strategy: str, field: str, attribute: str) -> CrossFieldRule:
    return CrossFieldRule(
        field=field,
        message=f"is for strategy: {strategy} only",
        holds=lambda sharing: sharing.strategy == strategy or getattr(sharing, attribute) is None,
        cel=f"!has(self.{field}) || (has(self.strategy) && self.strategy == '{strategy}')",
    )


def _is_for_partitions(field: str) -> CrossFieldRule:
    return CrossFieldRule(
        field=field,
        message="applies to partitions only, not to cut: Whole",
        holds=lambda spec: getattr(spec, field) is None or spec.cut in {None, "Partition"},
        cel=f"!has(self.{field}) || !has(self.cut) || self.cut == 'Partition'",
    )


def _not_empty(*fields: str) -> CrossFieldRule:
    return CrossFieldRule(
        field="",
        message="is empty: give one size at least, or leave it out",
        holds=lambda minimum: minimum != type(minimum)(),
        cel=" || ".join(f"has(self.{field})" for field in fields),
    )


def _is_text_of_config(field: str, example: str) -> CrossFieldRule:
    def holds(spec: ResourceClassSpec) -> bool:
        text = example if spec.config is None else spec.config.get(field)
        return isinstance(text, str) and bool(text)

    return CrossFieldRule(
        field=f"config.{field}",
        message=f"is required: a text such as {example}",
        holds=holds,
        cel=f"!has(self.config) || self.config.{field} != ''",
    )


_SIZE_RULES: Final = (
    CrossFieldRule(
        field="minimum",
        message="excludes profile: a profile is an exact size",
        holds=lambda spec: spec.profile is None or spec.minimum is None,
        cel="!(has(self.profile) && has(self.minimum))",
    ),
    _is_for_partitions("profile"),
)
_FUNCTION_RULE: Final = _is_for_partitions("function")
_SPEC_RULES: Final = (
    *_SIZE_RULES,
    _FUNCTION_RULE,
    CrossFieldRule(
        field="minimum",
        message="excludes cut: Monitor, whose devices have no capacities",
        holds=lambda spec: spec.minimum is None or spec.cut != "Monitor",
        cel="!has(self.minimum) || !has(self.cut) || self.cut != 'Monitor'",
    ),
    CrossFieldRule(
        field="orWhole",
        message="adds whole cards to partitions by size, so it excludes cut, profile and function",
        holds=lambda spec: (
            not spec.or_whole or (spec.cut == "Partition" and spec.profile is None and spec.function is None)
        ),
        cel=(
            "!has(self.orWhole) || !self.orWhole || "
            "!(has(self.cut) && self.cut != 'Partition' || has(self.profile) || has(self.function))"
        ),
    ),
    CrossFieldRule(
        field="maxPods",
        message=(
            "cannot be kept to: kube-scheduler knows no such limit, and would try to bind further pods for ever; use "
            "a claim for each pod, with allocation: Shared and a share of the memory where pods share a device"
        ),
        holds=lambda spec: spec.max_pods is None,
        cel="!has(self.maxPods)",
    ),
    CrossFieldRule(
        field="allocation",
        message="Shared needs a profile, function, or cut: Whole: nodes must know which devices to share",
        holds=lambda spec: spec.allocation == "Exclusive" or bool(spec.profile or spec.function) or spec.cut == "Whole",
        cel=(
            "!has(self.allocation) || self.allocation == 'Exclusive' || has(self.profile) || has(self.function)"
            " || (has(self.cut) && self.cut == 'Whole')"
        ),
    ),
    CrossFieldRule(
        field="placement",
        message="excludes cut: Monitor, whose devices take nothing from others",
        holds=lambda spec: spec.placement is None or spec.cut != "Monitor",
        cel="!has(self.placement) || !has(self.cut) || self.cut != 'Monitor'",
    ),
    _is_text_of_config("apiVersion", "kerf.dev/v1alpha1"),
    _is_text_of_config("kind", "GpuConfig"),
    CrossFieldRule(
        field="sharing",
        message="is short for config.sharing: set one of the two",
        holds=lambda spec: spec.sharing is None or spec.config is None,
        cel="!(has(self.sharing) && has(self.config))",
    ),
    CrossFieldRule(
        field="extendedResourceName",
        message="must not be in the domain kubernetes.io, which is the cluster's own",
        holds=lambda spec: "kubernetes.io/" not in (spec.extended_resource_name or ""),
        cel="!has(self.extendedResourceName) || !self.extendedResourceName.contains('kubernetes.io/')",
    ),
    CrossFieldRule(
        field="devicePlugin",
        message="excludes cut: Monitor and allocation: Shared: the kubelet gives a device to one container",
        holds=lambda spec: spec.device_plugin is None or (spec.cut != "Monitor" and spec.allocation == "Exclusive"),
        cel=(
            "!has(self.devicePlugin) || !(has(self.cut) && self.cut == 'Monitor' ||"
            " has(self.allocation) && self.allocation == 'Shared')"
        ),
    ),
    CrossFieldRule(
        field="devicePlugin.resource",
        message="must differ from extendedResourceName, which the scheduler counts by itself",
        holds=lambda spec: spec.device_plugin is None or spec.device_plugin.resource != spec.extended_resource_name,
        cel=(
            "!has(self.devicePlugin) || !has(self.extendedResourceName)"
            " || self.devicePlugin.resource != self.extendedResourceName"
        ),
    ),
)

_DEVICE_PLUGIN_RULES: Final = (
    CrossFieldRule(
        field="resource",
        message="must not be in the domain kubernetes.io, which is the cluster's own",
        holds=lambda offer: "kubernetes.io/" not in offer.resource,
        cel="!self.resource.contains('kubernetes.io/')",
    ),
)

_TOLERATION_RULES: Final = (
    CrossFieldRule(
        field="value",
        message="must be empty with operator: Exists",
        holds=lambda toleration: toleration.operator == "Equal" or not toleration.value,
        cel="!has(self.operator) || self.operator == 'Equal' || !has(self.value) || self.value == ''",
    ),
    CrossFieldRule(
        field="key",
        message="is required with operator: Equal; write operator: Exists to tolerate every taint",
        holds=lambda toleration: toleration.operator == "Exists" or bool(toleration.key),
        cel="(has(self.operator) && self.operator == 'Exists') || (has(self.key) && self.key != '')",
    ),
    CrossFieldRule(
        field="tolerationSeconds",
        message="is for effect: NoExecute only",
        holds=lambda toleration: toleration.toleration_seconds is None or toleration.effect == "NoExecute",
        cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
    ),
)

_MONITOR_RULE: Final = CrossFieldRule(
    field="monitor",
    message="allocates no devices, so it excludes cut, profile, minimum and sharing",
    holds=lambda spec: not spec.monitor or (spec.cut, spec.profile, spec.minimum, spec.sharing) == (None,) * 4,
    cel=(
        "!has(self.monitor) || !self.monitor || "
        "!(has(self.cut) || has(self.profile) || has(self.minimum) || has(self.sharing))"
    ),
)


def _is_of_one_node(field: str, attribute: str, what: str) -> CrossFieldRule:
    return CrossFieldRule(
        field=field,
        message=f"is for devices of one node: a shared device has no {what} that is the same on all nodes",
        holds=lambda spec: not spec.shared or not getattr(spec, attribute),
        cel=f"!self.shared || !has(self.{field}) || size(self.{field}) == 0",
    )


_DISCOVERED_DEVICE_RULES: Final = (
    _is_of_one_node("mounts", "mounts", "path"),
    _is_of_one_node("deviceNodes", "device_nodes", "device node"),
    CrossFieldRule(
        field="nodes",
        message="has several nodes, but the device is not shared",
        holds=lambda spec: spec.shared or len(spec.nodes) <= 1,
        cel="self.shared || !has(self.nodes) || size(self.nodes) <= 1",
    ),
    CrossFieldRule(
        field="nodes",
        message="has another node than that which found it, but the device is not shared",
        holds=lambda spec: spec.shared or spec.found_by is None or {*spec.nodes} <= {spec.found_by},
        cel="self.shared || !has(self.foundBy) || !has(self.nodes) || self.nodes.all(node, node == self.foundBy)",
    ),
)

_DIVISION_RULE: Final = CrossFieldRule(
    field="",
    message="needs one of slots and resources",
    holds=lambda layout: bool(layout.slots) != (layout.resources is not None),
    cel="has(self.slots) != has(self.resources)",
)

RULES: Final[Mapping[type[msgspec.Struct], tuple[CrossFieldRule, ...]]] = {
    GpuClassParametersSpec: (*_SIZE_RULES, _MONITOR_RULE),
    GpuClaimParametersSpec: _SIZE_RULES,
    FpgaClassParametersSpec: (_FUNCTION_RULE,),
    FpgaClaimParametersSpec: (_FUNCTION_RULE,),
    GpuMinimum: (_not_empty("memory", "computeSlices"),),
    ResourceClassSpec: _SPEC_RULES,
    NodeLabelRequirement: (
        CrossFieldRule(
            field="values",
            message="must be there with operator In or NotIn, and only there",
            holds=lambda requirement: bool(requirement.values) == (requirement.operator in {"In", "NotIn"}),
            cel="(has(self.values) && size(self.values) > 0) == (self.operator == 'In' || self.operator == 'NotIn')",
        ),
    ),
    GpuSharing: (
        _is_strategy_or_unset("TimeSlicing", "timeSlicing", "time_slicing"),
        _is_strategy_or_unset("Mps", "mps", "mps"),
    ),
    ClassToleration: _TOLERATION_RULES,
    FpgaFile: (
        CrossFieldRule(
            field="",
            message="needs one of file and url",
            holds=lambda file: (file.file is None) != (file.url is None),
            cel="has(self.file) != has(self.url)",
        ),
    ),
    FpgaShellSpec: (_DIVISION_RULE,),
    FpgaLayout: (_DIVISION_RULE,),
    DevicePluginOffer: _DEVICE_PLUGIN_RULES,
    DiscoveryConfiguration: (
        CrossFieldRule(
            field="",  # the API server has no rule with the path of metadata
            message="metadata.name must be a DNS label of at most 56 characters: names of devices begin with it",
            holds=lambda held: re.fullmatch(CONFIGURATION_NAME, held.metadata.name) is not None,
            cel=f"self.metadata.name.matches('{CONFIGURATION_NAME}')",
        ),
    ),
    DiscoveredDeviceSpec: _DISCOVERED_DEVICE_RULES,
    CardMaintenanceSpec: (
        CrossFieldRule(
            field="hook",
            message="names the program of then: Hook, and is for nothing else",
            holds=lambda spec: (spec.hook is not None) == (spec.then == "Hook"),
            cel="has(self.hook) == (has(self.then) && self.then == 'Hook')",
        ),
    ),
}


SERVER_RULES: Final[Mapping[type[msgspec.Struct], tuple[ServerRule, ...]]] = {
    ResourceClassSpec: (
        _not_for("fpga", "profile"),
        _not_for("fpga", "sharing"),
        _not_for("gpu", "function"),
        ServerRule(
            field="allocation",
            message="Shared needs function: of an FPGA only functions have shares",
            cel=(
                "self.device != 'fpga' || !has(self.allocation) || self.allocation == 'Exclusive' || has(self.function)"
            ),
        ),
        _only_minimums_for("gpu", "memory", "computeSlices"),
        _only_minimums_for("fpga", "slots", "lut", "dsp"),
        _only_config_for("gpu", "GpuConfig"),
        _only_config_for("fpga", "FpgaConfig"),
    ),
}
"""Rules of Kerf's own families, which the API server evaluates beside RULES."""


def find_broken_rules(value: msgspec.Struct, path: str = "", unreadable: Collection[str] = ()) -> Iterator[Problem]:
    """Yield a problem for each rule that ``value``, at ``path`` in its document, or a struct in it breaks.

    Rules that read a field in ``unreadable``, paths that were removed from ``value`` as invalid, are not evaluated.
    """
    for rule in RULES.get(type(value), ()):
        reads = [join_path(path, field) for field in rule.reads]
        if not rule.holds(value) and not any(_overlap(read, one) for read in reads for one in unreadable):
            yield Problem(join_path(path, rule.field) if rule.field else path, rule.message)
    # msgspec.structs.fields would evaluate all annotations of the type at each call.
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        yield from _inside(getattr(value, name), join_path(path, encoded), unreadable)


def _inside(held: object, path: str, unreadable: Collection[str]) -> Iterator[Problem]:
    if isinstance(held, msgspec.Struct):
        yield from find_broken_rules(held, path, unreadable)
    elif isinstance(held, tuple):
        for index, item in enumerate(held):
            yield from _inside(item, f"{path}[{index}]", unreadable)


def _overlap(path: str, other: str) -> bool:
    """Whether one of two paths is, or is inside, the other."""
    outer, inner = sorted((path, other), key=len)
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))
