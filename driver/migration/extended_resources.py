"""Extended resources that stay in a document: where they are, and why they are not converted. Pure.

An extended resource is a name with a domain in ``limits``, ``requests`` or a quota's ``hard``. The walk knows no kinds:
pods may be anywhere, such as in the objects of other operators.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kerf_dra.driver.families.counted_resources import AKRI, INTEL, find_mig_profile
from kerf_dra.driver.families.gpu.catalog import gpu_models

_AMOUNTS: Final = ("limits", "requests", "hard")
"""Fields whose keys are resources: of containers and pods, and of a ResourceQuota."""
_QUOTA_PREFIXES: Final = ("limits.", "requests.")
"""Of a ResourceQuota's keys."""
_NATIVE: Final = ("kubernetes.io", "k8s.io")
"""Domains, and the ends of domains, of what Kubernetes itself counts."""

_BY_MEMORY: Final = "`kerf claim gpu --memory AMOUNT` writes a claim for a part of a card"
_SERVED_BY_OTHERS: Final = "is no GPU or FPGA: it is counted by its own device plugin, which has to stay"
_INDEPENDENT: Final = re.compile(
    r"(rdma|devices\.kubevirt\.io|smarter-devices|squat\.ai|github\.com|vpc\.amazonaws\.com|k8s\.amazonaws\.com"
    r"|networking\.gke\.io(\.networks)?|openshift\.io|mellanox\.com|tuning\.kubevirt\.io|k8s\.v1\.cni\.cncf\.io)/.*"
    r"|intel\.com/.*(sriov|netdevice|dpdk).*|sgx\.intel\.com/.*"
)
"""Network interfaces, device nodes and the like, which no share of a card is made of."""

_OTHER_VENDORS: Final = (
    r"(huawei|cambricon|hygon|metax-tech|mthreads|enflame|birentech|kunlunxin|vastaitech)\.com/.*|iluvatar\.ai/.*"
    r"|habana\.ai/.*|google\.com/tpu|aws\.amazon\.com/neuron.*|(qat|dsa|iaa|dlb|npu)\.intel\.com/.*"
)
_PARTS: Final = (
    r"nvidia\.com/gpu-[0-9]+gb|nos\.nebuly\.com/.*|(volcano\.sh|4pd\.io)/v?gpu-.*|aliyun\.com/gpu-.*"
    r"|tencent\.com/vcuda-.*|.*/(gpu-?mem(ory)?|vgpu.*|gpu-?cores?|gpu-?fraction)"
)
"""Shares of cards as nos, Volcano, Alibaba's and Tencent's plugins, and HAMi with other names count them."""
_REASONS: Final[Mapping[str, str]] = {
    r"nvidia\.com/mig-[0-9]+c\..*": (
        "a part of a MIG device (compute instance), which Kerf does not make: have the class name the whole profile "
        "(`kerf claim gpu --profile PROFILE`), or the containers share one claim"
    ),
    r"nvidia\.com/.*\.shared": (
        "a card that NVIDIA's plugin lends to several pods, without a size: write a class with allocation: Shared "
        "(docs/shared-partitions.md), or have the pods share one claim"
    ),
    r"nvidia\.com/(gpumem|gpumem-percentage|gpucores|vgpu|vgpu-memory|vgpu-cores|priority)": (
        f"a part of a card, or a setting of it, that HAMi counts: {_BY_MEMORY}"
    ),
    _OTHER_VENDORS: "of a vendor for whose cards Kerf has no backend: its device plugin has to stay",
    _PARTS: f"a part of a card that another project counts: {_BY_MEMORY}",
    r"nvidia\.com/.*": (
        "no resource of NVIDIA's device plugin that Kerf knows (its configuration may rename them): write a class for "
        "the devices behind it"
    ),
    r"fpga\.intel\.com/.*": (
        "a region or a function of Intel's FPGA plugin, whose names say neither the image nor the interface: register "
        "the image, and write a ResourceClass with device: fpga and the function (docs/fpga.md)"
    ),
    r"(amd|xilinx)\.com/(xilinx_|fpga|ama_|v[0-9]|u[0-9]).*": (
        "a shell of AMD's FPGA plugin, whose name says no function: register the image, and write a ResourceClass with "
        "device: fpga and the function (docs/fpga.md)"
    ),
    rf"{re.escape(INTEL)}.*_?monitoring": (
        "every card for monitoring: make a class with cut: Monitor; its claims need adminAccess, in a namespace that "
        "is labeled for it (docs/admin-access.md)"
    ),
    rf"{re.escape(INTEL)}.*": "no resource of Intel's GPU plugin that Kerf knows",
    rf"{re.escape(AKRI)}.*": "Akri has no resource of this name: it writes - for each . and / of a Configuration's",
    r"kerf\.dev/.*": (
        "which class offers it these files do not have: convert it together with the ResourceClass that has it as "
        "devicePlugin.resource"
    ),
    r"(.*\.)?amd\.com/.*": "Kerf has no backend for AMD's GPUs (docs/write-a-backend.md)",
}
"""Patterns of resources, the first that matches counts, with the reason for which they stay and what to do."""
_COMPILED: Final = tuple((re.compile(pattern), reason) for pattern, reason in _REASONS.items())


def is_extended(name: str) -> bool:
    """Whether a key of ``limits`` or ``requests`` is an extended resource."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not any(domain == native or domain.endswith(f".{native}") for native in _NATIVE)


def is_independent(name: str) -> bool:
    """Whether a resource has nothing to do with the cards of its container, so that it may stay beside a claim."""
    return _INDEPENDENT.fullmatch(name) is not None


def is_known_profile(profile: str) -> bool:
    """Whether a GPU model of Kerf's table has a MIG profile."""
    return any(profile in (each.name, *each.other_names) for model in gpu_models() for each in model.profiles)


def describe_unconverted(name: str) -> str:
    """Return why an extended resource stays, and what to do."""
    if is_independent(name):
        return _SERVED_BY_OTHERS
    if (profile := find_mig_profile(name)) is not None and not is_known_profile(profile):
        return f"no GPU model that Kerf knows has the profile {profile}: `kerf models` lists them"
    default = "Kerf serves no such devices, so its device plugin has to stay"
    return next((reason for pattern, reason in _COMPILED if pattern.fullmatch(name)), default)


def find_extended_resources(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the field and the name of each extended resource in a document, once for limits and requests of one object.

    >>> list(find_extended_resources({"spec": {"limits": {"cpu": 1, "nvidia.com/gpu": 1}}}))
    [('spec.limits.nvidia.com/gpu', 'nvidia.com/gpu')]
    """
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from find_extended_resources(each, f"{path}[{number}]")
    if not isinstance(value, dict):
        return
    fields: Mapping[Any, object] = value
    found: set[str] = set()
    for key, inner in fields.items():
        where = f"{path}.{key}" if path else str(key)
        if key in _AMOUNTS and isinstance(inner, dict):
            for amount in map(str, inner):
                name = _resource_of(amount, key)
                if is_extended(name) and name not in found:
                    found.add(name)
                    yield f"{where}.{amount}", name
        else:
            yield from find_extended_resources(inner, where)


def _resource_of(key: str, field: object) -> str:
    """Return the resource of a key: those of a quota have the kind of amount before it."""
    if field == "hard":
        for prefix in _QUOTA_PREFIXES:
            key = key.removeprefix(prefix)
    return key
