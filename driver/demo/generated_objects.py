"""The objects that the demo generates from the geometry of the chosen cards, in addition to the examples. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import API_VERSION
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import ATTRIBUTE_UUID
from kerf_dra.driver.families import selectors
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.fpga.shell import Function, Shell
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.model import GpuModel, Profile

NAMESPACE: Final = "kerf-demo"
"""The namespace of the generated pods; the examples choose their own."""
_FEW: Final = 3
"""How many pods of the plan for a repair fit on a card, or about as many: a picture shows them with their names."""
_IMAGE: Final = "busybox"
"""An image that is never pulled: the kubelet stand-in runs no containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePlan:
    """Two ways to partition the same card: many small partitions, then few large ones."""

    small: Profile
    count: int
    large: tuple[Profile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """Pods on several cards, which also fit when one of the cards is away."""

    profile: Profile
    count: int


def plan_repair(model: GpuModel, cards: int) -> RepairPlan | None:
    """Plan for one pod fewer than fit on all cards but one; None: the cluster has a single card.

    The profile is one of which about three fit on a card, so that a card with two pods remains.

    >>> from kerf_dra.driver.families.gpu.catalog import gpu_model
    >>> plan = plan_repair(gpu_model("h100-80gb-sxm"), cards=4)
    >>> plan.profile.name, plan.count
    ('2g.20gb', 8)
    """
    profile = min(_list_plain(model), key=lambda each: abs(_fitting(each) - _FEW))
    count = _fitting(profile) * (cards - 1) - 1
    return RepairPlan(profile=profile, count=count) if count > 0 else None


def plan_resize(model: GpuModel) -> ResizePlan:
    """Plan for as many of the smallest profile as fit, then the two profiles that use most of the card together.

    Profiles that differ only in engines (``+me``, ``+gfx``) are ignored. A card without two other profiles that fit
    together goes from its smallest profile to its largest.

    >>> from kerf_dra.driver.families.gpu.catalog import gpu_model
    >>> plan = plan_resize(gpu_model("h100-80gb-sxm"))
    >>> plan.count, plan.small.name, [profile.name for profile in plan.large]
    (7, '1g.10gb', ['4g.40gb', '3g.40gb'])
    """
    plain = _list_plain(model)
    small = max(plain, key=lambda profile: (_fitting(profile), -profile.compute_slices))
    others = [profile for profile in plain if profile is not small]
    pairs = [pair for pair in combinations_with_replacement(others, 2) if _coexist(*pair)]
    if pairs:
        best = max(pairs, key=lambda pair: (pair[0].compute_slices + pair[1].compute_slices, len({*_names(pair)})))
        large: tuple[Profile, ...] = tuple(sorted(best, key=lambda profile: -profile.compute_slices))
    else:
        large = (max(plain, key=lambda profile: profile.compute_slices),)
    return ResizePlan(small=small, count=_fitting(small), large=large)


def choose_functions(shell: Shell) -> tuple[Function, ...]:
    """Choose the functions to load one after the other: one of few slots, then one of most slots."""
    by_size = sorted(shell.functions, key=lambda function: function.placements[0].size)
    return (by_size[0], by_size[-1]) if len(by_size) > 1 else tuple(by_size)


def gpu_objects(profiles: Sequence[Profile], node: str, card_uuid: str, name: str = "") -> list[JsonObject]:
    """Generate a class for each profile, and for each entry a pod with its own claim, all on one card.

    The pods are called after their profiles, or ``name``, where there is only one.
    """
    objects: list[JsonObject] = [_class(name, {"device": "gpu", "profile": name}) for name in sorted(_names(profiles))]
    for number, profile in enumerate(profiles):
        objects += _pod(name or f"{_slug(profile.name)}-{number}", _class_name(profile.name), GPU, node, card_uuid)
    return objects


def fpga_objects(function: Function, node: str, card_uuid: str) -> list[JsonObject]:
    """Generate a class for the function, and a pod with a claim of it."""
    class_ = _class(function.name, {"device": "fpga", "function": function.name})
    return [class_, *_pod(_slug(function.name), _class_name(function.name), FPGA, node, card_uuid)]


def namespace_object() -> JsonObject:
    """Return the namespace of the generated pods."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def deployment_objects(plan: RepairPlan, name: str) -> list[JsonObject]:
    """Generate a class, a template of claims, and a Deployment of pods that may be on any card."""
    class_name = plan.profile.name
    request = {"name": "device", "exactly": {"deviceClassName": _class_name(class_name)}}
    metadata = {"name": name, "namespace": NAMESPACE}
    template = _claim_template(metadata, request)
    pod = {"metadata": {"labels": {"app": name}}, "spec": _pod_spec(name)}
    spec = {"replicas": plan.count, "selector": {"matchLabels": {"app": name}}, "template": pod}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    return [_class(class_name, {"device": "gpu", "profile": class_name}), template, deployment]


def _list_plain(model: GpuModel) -> list[Profile]:
    """Return the profiles that differ not only in engines, if there are any."""
    return [profile for profile in model.profiles if not set(profile.name) & set("+-")] or list(model.profiles)


def _fitting(profile: Profile) -> int:
    disjoint, end = 0, 0
    for placement in profile.placements:
        if placement.start >= end:
            disjoint, end = disjoint + 1, placement.start + placement.size
    return min(disjoint, profile.max_instances)


def _coexist(first: Profile, second: Profile) -> bool:
    places = product(first.placements, second.placements)
    return any(not a.overlaps(b) for a, b in places) and (first is not second or first.max_instances > 1)


def _names(profiles: Sequence[Profile]) -> set[str]:
    return {profile.name for profile in profiles}


def _slug(name: str) -> str:
    """Return a name such as ``1g.10gb+me`` as part of an object's name."""
    return name.replace(".", "-").replace("+", "-").lower()


def _class_name(name: str) -> str:
    return f"demo-{_slug(name)}"


def _class(name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": _class_name(name)}
    return {"apiVersion": API_VERSION, "kind": "ResourceClass", "metadata": metadata, "spec": spec}


def _pod(name: str, class_name: str, family: Family, node: str, card_uuid: str) -> Iterator[JsonObject]:
    on_card = selectors.attribute_is(family, ATTRIBUTE_UUID, card_uuid)
    request = {
        "name": "device",
        "exactly": {"deviceClassName": class_name, "selectors": [{"cel": {"expression": on_card}}]},
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    yield _claim_template(metadata, request)
    spec = {"restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": node}, **_pod_spec(name)}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _claim_template(metadata: JsonObject, request: JsonObject) -> JsonObject:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _pod_spec(template: str) -> JsonObject:
    """Return the spec of a pod with one container, which uses a claim of a template."""
    return {
        "resourceClaims": [{"name": "claim", "resourceClaimTemplateName": template}],
        "containers": [
            {
                "name": "main",
                "image": _IMAGE,
                "command": ["sleep", "infinity"],
                "resources": {"claims": [{"name": "claim"}]},
            }
        ],
    }
