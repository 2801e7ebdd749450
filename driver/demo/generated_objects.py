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
_IMAGE: Final = "busybox"
"""An image that is never pulled: the kubelet stand-in runs no containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePlan:
    """Two ways to partition the same card: many small partitions, then few large ones."""

    small: Profile
    count: int
    large: tuple[Profile, ...]


def plan_resize(model: GpuModel) -> ResizePlan:
    """Plan for as many of the smallest profile as fit, then the two profiles that use most of the card together.

    Profiles that differ only in engines (``+me``, ``+gfx``) are ignored. A card without two other profiles that fit
    together goes from its smallest profile to its largest.

    >>> from kerf_dra.driver.families.gpu.catalog import gpu_model
    >>> plan = plan_resize(gpu_model("h100-80gb-sxm"))
    >>> plan.count, plan.small.name, [profile.name for profile in plan.large]
    (7, '1g.10gb', ['4g.40gb', '3g.40gb'])
    """
    plain = [profile for profile in model.profiles if not set(profile.name) & set("+-")] or list(model.profiles)
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
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    yield {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "resourceClaims": [{"name": "claim", "resourceClaimTemplateName": name}],
            "containers": [
                {
                    "name": "main",
                    "image": _IMAGE,
                    "command": ["sleep", "infinity"],
                    "resources": {"claims": [{"name": "claim"}]},
                }
            ],
        },
    }
