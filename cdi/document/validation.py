"""Validates the content of a spec: finds all faults in one pass, each with its field path.

``kerf_dra.cdi.document.rules`` lists the readers that reject a document for each fault.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kerf_dra.cdi.document.fields import FIELDS, RANGES, ListOf, Scalar, Shape, TextMap
from kerf_dra.cdi.document.rules import severity
from kerf_dra.cdi.errors import Finding
from kerf_dra.cdi.names import Semantics, device_name_mistake
from kerf_dra.cdi.spec import HOOK_STAGES, ContainerEdits, Device, DeviceNode, Hook, Mount, NetDevice, Spec
from kerf_dra.cdi.versions import VERSIONS, WITHDRAWN, minimum_version, version_that_readers_enforce

_ANNOTATIONS_MAX_BYTES = 256 * 1024
"""Kubernetes' limit for all annotations of an object, also in the Go library's check, which is never called."""
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_DNS_MAX = 253
"""The most characters of a DNS subdomain (RFC 1123)."""
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""The name part of a Kubernetes qualified name, after the slash."""
_CLASS_MAX = 63
"""The most characters of a class, which is a label in SPEC.md."""
_INTERFACE_NAME_MAX = 15
"""The most bytes of an interface name: IFNAMSIZ of Linux is 16 with the terminating zero."""
_CLOSID_END = 4096
"""The bound of the length of a CLOS id, which is a path in resctrl: PATH_MAX of Linux."""
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
"""The characters that no text can hold: a lone surrogate cannot be encoded, and the kernel ends a string at NUL."""
_DEVICE_NUMBER_END = 2**32
"""The bound of major and minor, which have 32 bits each in OCI."""

_Mistake = tuple[str, str, str]
"""The code, path and message of a fault."""


def validate(spec: Spec, semantics: Semantics | None = None) -> tuple[Finding, ...]:
    """Return all errors and doubts in ``spec``: first what no document can hold, then the rest in document order.

    ``semantics`` None checks a spec that is to be written: errors are the faults that any reader rejects or no runtime
    can apply. Otherwise errors are the faults that this library rejects, and all other findings are warnings.
    """
    return tuple(
        Finding(code=code, path=path, message=message, severity=severity(code, semantics))
        for code, path, message in itertools.chain(_unwritable(spec, ""), _mistakes(spec))
    )


def has_no_findings(spec: Spec) -> bool:
    """Whether ``validate`` finds nothing in ``spec``, which was read, so that it holds nothing unwritable."""
    return next(_mistakes(spec), None) is None


def _mistakes(spec: Spec) -> Iterator[_Mistake]:
    yield from _version(spec)
    yield from _kind(spec)
    yield from _annotations(spec.annotations, "annotations")
    yield from _edits(spec.container_edits, "containerEdits")
    if not spec.devices:
        yield "no-devices", "devices", "a spec has at least one device"
    yield from _repeats("duplicate-device", "device name", "devices[{}].name", [device.name for device in spec.devices])
    for index, device in enumerate(spec.devices):
        yield from _device(device, f"devices[{index}]")


def _version(spec: Spec) -> Iterator[_Mistake]:
    if spec.version is None:
        return
    version, needed = spec.version.removeprefix("v"), minimum_version(spec)
    if version in WITHDRAWN:
        yield "version-too-low", "cdiVersion", f"{version} is no longer read; the content needs {needed} or higher"
    elif version not in VERSIONS:
        yield "unknown-version", "cdiVersion", f"{spec.version!r} is none of {', '.join(VERSIONS)}"
    elif VERSIONS.index(version) < VERSIONS.index(needed.version):
        is_refused = VERSIONS.index(version) < VERSIONS.index(version_that_readers_enforce(spec))
        reasons = "; ".join(map(str, needed.reasons))
        code = "version-too-low" if is_refused else "version-understated"
        yield code, "cdiVersion", f"{version} is declared, the content needs {reasons}"
    elif version != needed.version:
        message = f"{version} is declared, {needed} would do; readers that do not know {version} skip the file silently"
        yield "version-too-high", "cdiVersion", message


def _kind(spec: Spec) -> Iterator[_Mistake]:
    yield from ((code, "kind", reason) for code, reason in spec.kind.find_mistakes())
    vendor, class_name = spec.kind.vendor, spec.kind.class_name
    if vendor and not _is_subdomain(vendor):
        yield "vendor-not-dns", "kind", f"vendor {vendor!r} is no DNS subdomain of at most {_DNS_MAX} characters"
    if len(class_name) > _CLASS_MAX:
        yield "class-too-long", "kind", f"class {class_name!r} has more than {_CLASS_MAX} characters"


def _is_subdomain(text: str) -> bool:
    return len(text) <= _DNS_MAX and _DNS_SUBDOMAIN.fullmatch(text.lower()) is not None


def _annotations(annotations: Mapping[str, str], path: str) -> Iterator[_Mistake]:
    for key in annotations:
        prefix, slash, name = key.rpartition("/")
        if slash and not _is_subdomain(prefix):
            yield "annotation-key", f"{path}[{key}]", f"{prefix!r}, before the slash, is no DNS subdomain"
        if not _LABEL_NAME.fullmatch(name):
            message = f"{name!r} must be letters, digits, _ . and -, at most 63, with a letter or digit at both ends"
            yield "annotation-key", f"{path}[{key}]", message
    size = sum(len(text.encode(errors="replace")) for item in annotations.items() for text in item)
    if size > _ANNOTATIONS_MAX_BYTES:
        yield "annotations-too-large", path, f"{size} bytes are more than {_ANNOTATIONS_MAX_BYTES}"


def _unwritable(value: object, path: str) -> Iterator[_Mistake]:
    """Yield the strings and numbers in ``value`` that no document can hold."""
    for row in FIELDS[type(value)]:
        field = getattr(value, row.attribute)
        if field is not None:
            yield from _unwritable_field(row.shape, field, f"{path}.{row.key}" if path else row.key)


def _unwritable_field(shape: Shape, field: object, path: str) -> Iterator[_Mistake]:
    if isinstance(field, tuple) and isinstance(shape, ListOf):
        for index, item in enumerate(field):
            yield from _unwritable_field(shape.item, item, f"{path}[{index}]")
    elif isinstance(field, Mapping) and isinstance(shape, TextMap):
        for key, text in field.items():
            yield from _unwritable_field(Scalar.TEXT, key, path)
            yield from _unwritable_field(Scalar.TEXT, text, f"{path}[{key}]")
    elif isinstance(field, str):
        if _NOT_TEXT.search(field):
            yield "not-text", path, f"{field!r} holds a NUL or half a surrogate pair"
    elif isinstance(field, int) and isinstance(shape, Scalar) and shape in RANGES:
        lowest, highest = RANGES[shape]
        if not lowest <= field <= highest:
            yield "out-of-range", path, f"{field} is not {shape.value}"
    elif type(field) in FIELDS:
        yield from _unwritable(field, path)


def _device(device: Device, path: str) -> Iterator[_Mistake]:
    mistake = device_name_mistake(device.name)
    if mistake:
        yield "device-name", f"{path}.name", mistake
    yield from _annotations(device.annotations, f"{path}.annotations")
    if not device.container_edits:
        yield "device-empty-edits", f"{path}.containerEdits", "a device changes something in its container"
    yield from _edits(device.container_edits, f"{path}.containerEdits")


def _edits(edits: ContainerEdits, path: str) -> Iterator[_Mistake]:
    yield from _env(edits.env, f"{path}.env")
    for index, node in enumerate(edits.device_nodes):
        yield from _device_node(node, f"{path}.deviceNodes[{index}]")
    nodes = [node.path for node in edits.device_nodes]
    yield from _repeats("duplicate-device-node", "path", path + ".deviceNodes[{}].path", nodes)
    yield from _net_devices(edits.net_devices, f"{path}.netDevices")
    for index, hook in enumerate(edits.hooks):
        yield from _hook(hook, f"{path}.hooks[{index}]")
    for index, mount in enumerate(edits.mounts):
        yield from _mount(mount, f"{path}.mounts[{index}]")
    targets = [mount.container_path for mount in edits.mounts]
    yield from _repeats("duplicate-mount", "target", path + ".mounts[{}].containerPath", targets)
    if edits.intel_rdt is not None:
        yield from _clos_id(edits.intel_rdt.clos_id, f"{path}.intelRdt.closID")


def _env(entries: Iterable[str], path: str) -> Iterator[_Mistake]:
    names = []
    for index, entry in enumerate(entries):
        name, equals, _ = entry.partition("=")
        if not name or not equals:
            yield "env-entry", f"{path}[{index}]", f"{entry!r} is not NAME=VALUE"
        elif " " in name or not name.isprintable():
            yield "env-name", f"{path}[{index}]", f"{name!r} holds white space or a control character"
        names.append(name)
    yield from _repeats("duplicate-env", "variable", path + "[{}]", names)


def _device_node(node: DeviceNode, path: str) -> Iterator[_Mistake]:
    if not node.path:
        yield "device-path", f"{path}.path", "a device node has a path"
    yield from _absolute(node.path, path, "path")
    yield from _absolute(node.host_path, path, "hostPath")
    if node.type not in ("", "b", "c", "u", "p"):
        yield "device-type", f"{path}.type", f"{node.type!r} is none of b, c, u and p"
    if node.permissions == "none":
        message = "only readers later than release 1.1.0 know none; leave the node out to give no access"
        yield "permissions-none", f"{path}.permissions", message
    elif not set(node.permissions) <= set("rwm"):
        yield "device-permissions", f"{path}.permissions", f"{node.permissions!r} has letters other than r, w and m"
    for key, number in (("major", node.major), ("minor", node.minor)):
        if not 0 <= number < _DEVICE_NUMBER_END:
            yield "out-of-range", f"{path}.{key}", f"{number} is no device number"


def _net_devices(devices: Sequence[NetDevice], path: str) -> Iterator[_Mistake]:
    for index, device in enumerate(devices):
        yield from _interface_name(device.host_interface_name, f"{path}[{index}]", "hostInterfaceName")
        yield from _interface_name(device.name, f"{path}[{index}]", "name")
    hosts, names = [device.host_interface_name for device in devices], [device.name for device in devices]
    yield from _repeats("net-device", "hostInterfaceName", path + "[{}].hostInterfaceName", hosts)
    yield from _repeats("net-device", "name", path + "[{}].name", names)


def _interface_name(name: str, path: str, key: str) -> Iterator[_Mistake]:
    if not name:
        yield "net-device", f"{path}.{key}", f"a network device has a {key}"
    elif len(name.encode(errors="replace")) > _INTERFACE_NAME_MAX or name in (".", "..") or re.search(r"[\s/:]", name):
        limits = f"at most {_INTERFACE_NAME_MAX} bytes, no white space, slash or colon"
        yield "interface-name", f"{path}.{key}", f"{name!r} is no interface name: {limits}"


def _hook(hook: Hook, path: str) -> Iterator[_Mistake]:
    if hook.hook_name not in HOOK_STAGES:
        yield "hook-name", f"{path}.hookName", f"{hook.hook_name!r} is none of {', '.join(HOOK_STAGES)}"
    elif hook.hook_name == "prestart":
        yield "hook-deprecated", f"{path}.hookName", "OCI deprecates prestart; createRuntime runs at the same time"
    if not hook.path:
        yield "hook-path", f"{path}.path", "a hook has a path"
    yield from _absolute(hook.path, path, "path")
    yield from _env(hook.env, f"{path}.env")
    if hook.timeout is not None and hook.timeout <= 0:
        yield "hook-timeout", f"{path}.timeout", f"{hook.timeout} is not above zero; leave it out for no limit"


def _mount(mount: Mount, path: str) -> Iterator[_Mistake]:
    for key, place in (("hostPath", mount.host_path), ("containerPath", mount.container_path)):
        if not place:
            yield "mount", f"{path}.{key}", f"a mount has a {key}"
    yield from _absolute(mount.container_path, path, "containerPath")
    if mount.type in ("", "none", "bind"):
        yield from _absolute(mount.host_path, path, "hostPath")
        if not {"bind", "rbind"} & set(mount.options):
            message = "a bind mount needs bind or rbind among its options, whatever its type"
            yield "mount-not-bind", f"{path}.options", message


def _clos_id(name: str, path: str) -> Iterator[_Mistake]:
    too_long = len(name.encode(errors="replace")) >= _CLOSID_END
    # A single slash means the root class.
    if name != "/" and (too_long or name in (".", "..") or "/" in name or "\n" in name):
        yield "closid", path, f"{name!r} is no file name of fewer than {_CLOSID_END} bytes"


def _absolute(value: str, path: str, key: str) -> Iterator[_Mistake]:
    if value and not value.startswith("/"):
        yield "relative-path", f"{path}.{key}", f"{value!r} does not start with a slash"


def _repeats(code: str, noun: str, path: str, names: Sequence[str]) -> Iterator[_Mistake]:
    """Yield a mistake for each name that equals an earlier one; ``path`` has braces for the index."""
    if len({*names}) == len(names):
        return
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name and name in first:
            yield code, path.format(index), f"{noun} {name!r} is already at {path.format(first[name])}"
        first.setdefault(name, index)
