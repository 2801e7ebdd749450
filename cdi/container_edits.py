"""Applies container edits to an OCI spec as the Go library does (``ContainerEdits.Apply``), to a copy of it.

An OCI spec is a plain JSON object here (``config.json`` of the OCI runtime-spec). Only the fields that edits change
are interpreted; all others are copied, known or not.
"""

import copy
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from kerf_dra.cdi.errors import HostDeviceError, InvalidOCISpecError
from kerf_dra.cdi.host_devices import Host, HostView
from kerf_dra.cdi.names import Semantics
from kerf_dra.cdi.spec import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount

OCISpec: TypeAlias = dict[str, Any]


def apply(
    edits: ContainerEdits, oci: Mapping[str, Any], *, semantics: Semantics = "1.1", host: HostView | None = None
) -> OCISpec:
    """Return a copy of ``oci`` with ``edits`` applied. ``host`` completes device nodes; None: this machine.

    Raises HostDeviceError when a device node cannot be completed from the host, and InvalidOCISpecError when ``oci``
    holds a value of the wrong type in a field that edits change.
    """
    edited = _OCISpecEditor(oci, semantics)
    edited.add_env(edits.env)
    for node in edits.device_nodes:
        edited.add_device(complete_device_node(node, host or Host()))
    for device in edits.net_devices:
        edited.object("linux", "netDevices")[device.host_interface_name] = {"name": device.name}
    edited.add_mounts(edits.mounts)
    for hook in edits.hooks:
        edited.items("hooks", hook.hook_name).append(_hook(hook))
    if edits.intel_rdt is not None:
        edited.object("linux")["intelRdt"] = _intel_rdt(edits.intel_rdt)
    edited.add_groups(edits.additional_gids)
    return edited.oci


def complete_device_node(node: DeviceNode, host: HostView) -> DeviceNode:
    """Return ``node`` with its absent fields taken from the host.

    A node with type and major, or a FIFO, lacks at most its mode and need not exist on the host. Raises HostDeviceError
    when another node does not exist there, or is of another type.
    """
    is_complete = bool(node.type) and (node.major != 0 or node.type == "p")
    try:
        found = host.node(node.host_path or node.path)
    except HostDeviceError:
        if is_complete:
            return node
        raise
    if node.file_mode is None:
        node = replace(node, file_mode=found.file_mode)
    if is_complete:
        return node
    if node.type not in ("", found.type):
        reason = f"the spec says type {node.type}, the host's {node.host_path or node.path} has {found.type}"
        raise HostDeviceError(node.path, "host-type-mismatch", reason)
    # Readers accept a major without a type, and its minor with it, but no minor without a major.
    if node.major == 0 and found.type != "p":
        node = replace(node, major=found.major, minor=found.minor)
    return replace(node, type=found.type)


class _OCISpecEditor:
    """A copy of an OCI spec that edits are written into."""

    def __init__(self, oci: Mapping[str, Any], semantics: Semantics) -> None:
        self.oci: OCISpec = copy.deepcopy(dict(oci))
        self._is_main = semantics == "main"

    def object(self, *path: str) -> OCISpec:
        """Return the object at ``path``, created where it is missing. Raises InvalidOCISpecError for another type."""
        found = self.oci
        for depth, key in enumerate(path):
            if found.get(key) is None:
                found[key] = {}
            found = found[key]
            if not isinstance(found, dict):
                raise InvalidOCISpecError(".".join(path[: depth + 1]), "an object")
        return found

    def peek(self, *path: str) -> OCISpec:
        """Return the object at ``path``; if it is missing, an empty one that is not added to the spec."""
        found: OCISpec = self.oci
        for key in path:
            inner = found.get(key)
            if not isinstance(inner, dict):
                return {}
            found = inner
        return found

    def items(self, *path: str) -> list[Any]:
        """Return the list at ``path``, created where it is missing. Raises InvalidOCISpecError for another type."""
        parent, key = self.object(*path[:-1]), path[-1]
        if parent.get(key) is None:
            parent[key] = []
        found = parent[key]
        if not isinstance(found, list):
            raise InvalidOCISpecError(".".join(path), "a list")
        return found

    def objects(self, *path: str) -> list[OCISpec]:
        """Return the list of objects at ``path``. Raises InvalidOCISpecError when an item is no object."""
        found = self.items(*path)
        for index, item in enumerate(found):
            if not isinstance(item, dict):
                raise InvalidOCISpecError(f"{'.'.join(path)}[{index}]", "an object")
        return found

    def process(self) -> OCISpec:
        """Return the container's process, created with OCI's required fields, empty as in Go, where it is missing."""
        if self.oci.get("process") is None:
            self.oci["process"] = {"user": {"uid": 0, "gid": 0}, "cwd": ""}
        return self.object("process")

    def add_env(self, entries: Sequence[str]) -> None:
        """Add variables; one replaces another of its name, with semantics 1.1 only if that was added here."""
        if not entries:
            return
        self.process()
        present = self.items("process", "env")
        for index, entry in enumerate(present):
            if not isinstance(entry, str):
                raise InvalidOCISpecError(f"process.env[{index}]", "a text")
        # Release 1.1 compares names with whole entries, and so finds only entries without a value.
        index_of = {(_env_name(old) if self._is_main else old): at for at, old in enumerate(present)}
        for entry in entries:
            name = _env_name(entry)
            if name in index_of:
                present[index_of[name]] = entry
            else:
                index_of[name] = len(present)
                present.append(entry)

    def add_device(self, node: DeviceNode) -> None:
        """Add a device node and, if it is a block or character device, the cgroup rule that allows its use."""
        user = self.peek("process", "user")
        device = _without_none(
            path=node.path,
            type=node.type,
            major=node.major,
            minor=node.minor,
            fileMode=node.file_mode,
            # A process that does not run as root owns its device nodes.
            uid=user.get("uid") or None if node.uid is None else node.uid,
            gid=user.get("gid") or None if node.gid is None else node.gid,
        )
        present = self.objects("linux", "devices")
        _remove_first(present, "path", node.path)
        _put(present, "path", device)
        if node.type in ("b", "c"):
            access = {"": "rwm", "none": ""}.get(node.permissions, node.permissions)
            rule = _without_empty(type=node.type, access=access)
            rules = self.items("linux", "resources", "devices")
            rules.append({"allow": True, "major": node.major, "minor": node.minor, **rule})

    def add_mounts(self, mounts: Sequence[Mount]) -> None:
        """Add mounts, and sort all mounts of the container by depth, so that none hides another."""
        if not mounts:
            return
        present = self.objects("mounts")
        for mount in mounts:
            _remove_first(present, "destination", mount.container_path)
            present.append(self._mount(mount))
        present.sort(key=_depth)

    def add_groups(self, groups: Iterable[int]) -> None:
        """Add supplementary groups, except group 0 and those that the process has."""
        for group in groups:
            if group != 0:
                self.process()
                self.object("process", "user")
                present = self.items("process", "user", "additionalGids")
                if group not in present:
                    present.append(group)

    def _mount(self, mount: Mount) -> OCISpec:
        options = list(mount.options)
        if self._is_main and self._has_user_namespace() and not {"idmap", "ridmap"} & set(options):
            options += _id_mapping(mount)
        return {
            "destination": mount.container_path,
            **_without_empty(source=mount.host_path, type=mount.type, options=options),
        }

    def _has_user_namespace(self) -> bool:
        namespaces = self.peek("linux").get("namespaces")
        if not isinstance(namespaces, list):
            return False
        return any(isinstance(namespace, dict) and namespace.get("type") == "user" for namespace in namespaces)


def _id_mapping(mount: Mount) -> list[str]:
    """Return the option that maps a bind mount's file owners into the container's user namespace."""
    binds = [option for option in mount.options if option in ("bind", "rbind")]
    if binds:
        return ["ridmap" if binds[-1] == "rbind" else "idmap"]
    return ["idmap"] if mount.type == "bind" else []


def _intel_rdt(rdt: IntelRdt) -> OCISpec:
    return _without_empty(
        closID=rdt.clos_id,
        schemata=list(rdt.schemata or ()),
        l3CacheSchema=rdt.l3_cache_schema,
        memBwSchema=rdt.mem_bw_schema,
        enableMonitoring=rdt.enable_monitoring,
    )


def _hook(hook: Hook) -> OCISpec:
    written = {"path": hook.path, **_without_empty(args=list(hook.args), env=list(hook.env))}
    return {**written, **_without_none(timeout=hook.timeout)}


def _remove_first(items: list[OCISpec], key: str, value: str) -> None:
    for index, item in enumerate(items):
        if item.get(key) == value:
            del items[index]
            return


def _put(items: list[OCISpec], key: str, new: OCISpec) -> None:
    """Replace the first item with the same ``key``, or append ``new``."""
    for index, item in enumerate(items):
        if item.get(key) == new[key]:
            items[index] = new
            return
    items.append(new)


def _depth(mount: OCISpec) -> int:
    """Return the number of slashes in the cleaned destination."""
    path = posixpath.normpath(str(mount.get("destination") or "."))
    # Unlike Go, normpath keeps two leading slashes, to which POSIX allows a meaning of their own.
    return path.replace("//", "/").count("/")


def _env_name(entry: str) -> str:
    return entry.partition("=")[0]


def _without_empty(**fields: object) -> OCISpec:
    return {key: value for key, value in fields.items() if value}


def _without_none(**fields: object) -> OCISpec:
    return {key: value for key, value in fields.items() if value is not None}
