"""Hypothesis strategies for specs: those that may be written, and OCI specs to put devices into."""

from typing import Any

from hypothesis import strategies as st

from kerf_dra.cdi import (
    HOOK_STAGES,
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    Kind,
    Mount,
    NetDevice,
    Spec,
)

# What JSON and YAML disagree about, more often than chance would have it.
_TRICKY = "\t\n\r\"'\\/#:-?{}[],&*!|>%@`~ \x01\x7f\x80\x85\xa0\u2028\u2029\ufeff\ufffe\uffff\U0001f600é٣"
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from(_TRICKY)
_WORDS = st.sampled_from(["yes", "on", "null", "~", "0x10", "010", "1e3", "1_000", ".inf", "<<", "true", "2001-01-01"])
TEXTS = st.text(_CHARACTERS, max_size=12) | _WORDS

NUMBERS = st.integers(0, 2**32 - 1)
PATHS = TEXTS.map(lambda text: f"/{text}")
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
ENTRIES = st.builds(lambda name, value: f"{name}={value}", NAMES, TEXTS)
PARTS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,8}[A-Za-z0-9]", fullmatch=True)
KINDS = st.builds(Kind, vendor=PARTS, class_name=PARTS)
DEVICE_NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,8}[A-Za-z0-9])?", fullmatch=True) | _WORDS.filter(
    str.isalnum
)
ANNOTATIONS = st.dictionaries(st.from_regex(r"([a-z0-9]{1,5}/)?[A-Za-z0-9]{1,8}", fullmatch=True), TEXTS, max_size=2)
INTERFACES = st.from_regex(r"[a-z0-9.-]{3,15}", fullmatch=True).filter(lambda name: name.strip("."))


def tuples_of(items: st.SearchStrategy[Any], **limits: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=limits.pop("max_size", 2), **limits).map(tuple)


DEVICE_NODES = st.builds(
    DeviceNode,
    path=PATHS,
    host_path=st.just("") | PATHS,
    type=st.sampled_from(["", "b", "c", "u", "p"]),
    major=st.just(0) | NUMBERS,
    minor=NUMBERS,
    file_mode=st.none() | NUMBERS,
    permissions=st.sampled_from(["", "r", "rw", "rwm", "mm"]),
    uid=st.none() | NUMBERS,
    gid=st.none() | NUMBERS,
)
MOUNTS = st.builds(
    Mount,
    host_path=PATHS,
    container_path=PATHS,
    options=tuples_of(TEXTS).map(lambda options: (*options, "bind")),
    type=st.sampled_from(["", "bind", "none"]),
)
HOOKS = st.builds(
    Hook,
    hook_name=st.sampled_from(HOOK_STAGES),
    path=PATHS,
    args=tuples_of(TEXTS),
    env=tuples_of(ENTRIES),
    timeout=st.none() | st.integers(1, 2**31),
)
RDTS = st.builds(
    IntelRdt,
    clos_id=st.sampled_from(["", "/", "gold", "a b"]),
    l3_cache_schema=TEXTS,
    mem_bw_schema=TEXTS,
    schemata=st.none() | tuples_of(TEXTS),
    enable_monitoring=st.booleans(),
)
_NET_DEVICES = tuples_of(
    st.builds(NetDevice, host_interface_name=INTERFACES, name=INTERFACES),
    unique_by=(lambda device: device.host_interface_name, lambda device: device.name),
)
EDITS = st.builds(
    ContainerEdits,
    env=tuples_of(ENTRIES),
    device_nodes=tuples_of(DEVICE_NODES),
    net_devices=st.just(()) | _NET_DEVICES,
    hooks=tuples_of(HOOKS),
    mounts=tuples_of(MOUNTS),
    intel_rdt=st.none() | RDTS,
    additional_gids=st.just(()) | tuples_of(NUMBERS),
)
DEVICES = st.builds(
    Device, name=DEVICE_NAMES, container_edits=EDITS.filter(bool), annotations=st.just({}) | ANNOTATIONS
)
SPECS = st.builds(
    Spec,
    kind=KINDS,
    devices=tuples_of(DEVICES, min_size=1, unique_by=lambda device: device.name),
    container_edits=EDITS,
    annotations=st.just({}) | ANNOTATIONS,
)
"""Specs that may be written."""

_OCI_PATHS = st.sampled_from(["/", "/a", "/a/", "/a/b", "/dev/x", "//a", "/a/../b", "a", ""])
OCI_SPECS = st.fixed_dictionaries(
    {"ociVersion": st.just("1.2.0")},
    optional={
        "process": st.fixed_dictionaries(
            {
                "cwd": st.just("/"),
                "user": st.fixed_dictionaries(
                    {"uid": st.sampled_from([0, 1000]), "gid": st.sampled_from([0, 2000])},
                    optional={"additionalGids": st.lists(st.integers(1, 9), max_size=3)},
                ),
            },
            optional={"env": st.lists(ENTRIES | NAMES, max_size=3), "args": st.just(["sh"])},
        ),
        "mounts": st.lists(
            st.fixed_dictionaries({"destination": _OCI_PATHS, "source": st.sampled_from(["s1", "s2"])}), max_size=4
        ),
        "hooks": st.fixed_dictionaries(
            {}, optional={stage: st.lists(st.just({"path": "/old"}), min_size=1, max_size=1) for stage in HOOK_STAGES}
        ),
        "linux": st.fixed_dictionaries(
            {},
            optional={
                "namespaces": st.lists(st.sampled_from(["user", "mount"]).map(lambda kind: {"type": kind}), max_size=2),
                "devices": st.lists(
                    st.fixed_dictionaries(
                        {"path": _OCI_PATHS, "type": st.just("c"), "major": st.just(1), "minor": st.integers(1, 9)}
                    ),
                    max_size=3,
                ),
                "intelRdt": st.just({"closID": "old"}),
                "netDevices": st.dictionaries(INTERFACES, st.just({"name": "old"}), min_size=1, max_size=2),
            },
        ),
        "root": st.just({"path": "rootfs"}),
    },
)
