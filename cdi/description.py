"""Describes a device in sentences: its definition, its changes to a container, the runtimes that read its file."""

from collections.abc import Iterator

from kerf_dra.cdi.catalog import Catalog, Definition
from kerf_dra.cdi.runtime_versions import find_first_readers
from kerf_dra.cdi.spec import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount
from kerf_dra.cdi.versions import minimum_version

_STAGES = {
    "prestart": "before the process starts (a deprecated stage)",
    "createRuntime": "on the host, once the container's namespaces are there",
    "createContainer": "in the container's namespaces, before its root directory is entered",
    "startContainer": "inside the container, before its process starts",
    "poststart": "on the host, after the process has started",
    "poststop": "on the host, after the container is gone",
}


def describe_device(catalog: Catalog, name: str) -> Iterator[str]:
    """Yield lines about the device ``name``. Raises KeyError when it is not available in ``catalog``."""
    found = catalog.devices[name]
    yield f"{name} is defined in {found.file.path}."
    for other in catalog.definitions[name]:
        if other != found:
            yield f"{other.file.path} defines it too, in a directory of lower priority, and is overridden."
    yield from _version(found)
    yield "A container that requests it"
    yield from (f"  - {line}" for line in _edits(found.device.container_edits))
    shared = list(_edits(found.spec.container_edits))
    if shared:
        yield "and, as with every device of this file,"
        yield from (f"  - {line}" for line in shared)
    if found.file.document.findings:
        yield "About its file:"
        yield from (f"  - {finding}" for finding in found.file.document.findings)


def _version(found: Definition) -> Iterator[str]:
    needed = minimum_version(found.spec)
    reasons = "; ".join(f"{reason.path} ({reason.feature})" for reason in needed.reasons)
    yield f"It needs CDI {needed}{f', because of {reasons}' if reasons else '; no version is lower'}."
    declared = (found.spec.version or "").removeprefix("v")
    readers = ", ".join(f"{runtime} {release}" for runtime, release in find_first_readers(declared))
    yield f"Its file declares CDI {declared}, which is read from these releases on: {readers}."


def _edits(edits: ContainerEdits) -> Iterator[str]:
    """Yield the effects of edits as predicates of the sentence that begins "A container"."""
    for entry in edits.env:
        name, _, value = entry.partition("=")
        yield f"has {name} set to {value!r} in its environment"
    yield from map(_device_node, edits.device_nodes)
    for device in edits.net_devices:
        yield f"has the host's network interface {device.host_interface_name}, as {device.name}"
    yield from map(_mount, edits.mounts)
    yield from map(_hook, edits.hooks)
    if edits.intel_rdt is not None:
        yield _intel_rdt(edits.intel_rdt)
    yield from (f"runs with the supplementary group {group}" for group in edits.additional_gids if group)


def _device_node(node: DeviceNode) -> str:
    if node.type and (node.major or node.type == "p"):
        identity = f"{node.type} {node.major}:{node.minor}, whether the host has it or not"
    else:
        identity = f"as the host's {node.host_path or node.path}"
    access = {"": "rwm", "none": "no"}.get(node.permissions, node.permissions)
    owner = "" if node.uid is None else f", owned by user {node.uid}"
    mode = "" if node.file_mode is None else f", mode {node.file_mode:04o}"
    return f"has the device node {node.path} ({identity}{owner}{mode}) with {access} access"


def _mount(mount: Mount) -> str:
    how = ", ".join(word for word in (mount.type, *mount.options) if word)
    return f"has the host's {mount.host_path} at {mount.container_path}{f' ({how})' if how else ''}"


def _hook(hook: Hook) -> str:
    command = " ".join((hook.path, *hook.args[1:]))
    limit = "" if hook.timeout is None else f", for at most {hook.timeout} s"
    return f"has {command} run {_STAGES[hook.hook_name]}{limit}"


def _intel_rdt(rdt: IntelRdt) -> str:
    group = f"class {rdt.clos_id}" if rdt.clos_id else "a class of its own"
    schemata = "; ".join(text for text in (rdt.l3_cache_schema, rdt.mem_bw_schema, *(rdt.schemata or ())) if text)
    return f"is put under Intel RDT, in {group}{f' with {schemata}' if schemata else ''}"
