"""The command line ``python -m cdi``: lists what spec directories define, validates files, injects devices.

Every command yields results, printed as text, JSON or YAML on standard output; remarks on files that cannot be used go
to standard error. Exit status: 0 success; 1 something is wrong with a file or a device; 2 wrong usage, or an argument
that cannot be read.
"""

import argparse
import fnmatch
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from kerf_dra.cdi.cache import DEFAULT_DIRECTORIES, Cache, Difference, compare_catalogs, read_file, watch
from kerf_dra.cdi.catalog import Catalog
from kerf_dra.cdi.container_edits import OCISpec
from kerf_dra.cdi.description import describe_device
from kerf_dra.cdi.document.decoder import Document, read
from kerf_dra.cdi.document.document_tree import MAX_BYTES
from kerf_dra.cdi.document.encoder import to_document_unchecked, to_json, to_yaml
from kerf_dra.cdi.document.schema import schema
from kerf_dra.cdi.errors import CDIError, Finding, InvalidNameError
from kerf_dra.cdi.injection import inject
from kerf_dra.cdi.names import QualifiedName
from kerf_dra.cdi.versions import minimum_version

_STDIN = Path("-")


class UnreadableError(CDIError):
    """A file named on the command line cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """One result of a command, for programs and for people."""

    data: Any
    """The result as plain JSON values, for programs."""
    lines: Sequence[str]
    """The result as lines of text, for people."""
    status: int = 0


_Arguments: TypeAlias = argparse.Namespace


def main(
    arguments: Sequence[str] | None = None, *, program: str = "cdi", sleep: Callable[[float], None] = time.sleep
) -> int:
    """Run one command and return the exit status. Usage shows ``program``; ``watch`` waits with ``sleep``."""
    try:
        parsed = build_parser(program).parse_args(arguments, argparse.Namespace(sleep=sleep))
    except SystemExit as exit_:
        return int(exit_.code or 0)
    status = 0
    try:
        for answer in parsed.command(parsed):
            printed = _printed(answer, parsed.output)
            if printed:
                print(printed, flush=True)
            status = max(status, answer.status)
    except CDIError as error:
        print(f"cdi: {error}", file=sys.stderr)
        return 2 if isinstance(error, UnreadableError) else 1
    except KeyboardInterrupt:
        pass  # the user interrupts ``watch``
    except BrokenPipeError:
        # The reader has closed the output. Buffered output must not fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _options() -> argparse.ArgumentParser:
    """Build the options that are allowed before and after the command; argparse must not share one object for both."""
    options = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument(
        "-d",
        "--spec-dir",
        dest="directories",
        action="append",
        type=Path,
        metavar="DIR",
        help="a spec directory, weakest first; may be repeated (default: /etc/cdi, /var/run/cdi)",
    )
    options.add_argument("-o", "--output", choices=("text", "json", "yaml"), help="default: text")
    options.add_argument("--semantics", choices=("1.1", "main"), help="the Go library to follow (default: 1.1)")
    return options


def build_parser(program: str) -> argparse.ArgumentParser:
    about = "What the spec directories of this machine define (Container Device Interface)."
    parser = argparse.ArgumentParser(prog=program, description=about, parents=[_options()])
    parser.set_defaults(directories=None, output="text", semantics="1.1")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[_Arguments], Iterable[CommandResult]], help_: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_, description=help_, parents=[_options()])
        added.set_defaults(command=run)
        return added

    command("devices", partial(_names, "devices"), "the devices that can be requested")
    command("vendors", partial(_names, "vendors"), "the vendors of all specs")
    command("classes", partial(_names, "classes"), "the classes of all specs")
    specs = command("specs", _specs, "the spec files that can be used")
    specs.add_argument("vendor", nargs="*", help="only those of these vendors")
    command("dirs", _directories, "the spec directories and their priority")
    checked = command("validate", _validate, "what is wrong with spec files")
    checked.add_argument("--strict", action="store_true", help="hold them to what this package would write")
    checked.add_argument("file", nargs="*", type=Path, help="files, or - (default: all spec directories)")
    injected = command("inject", _inject, "an OCI spec with devices in it")
    injected.add_argument("oci", type=Path, metavar="OCI-SPEC", help="a config.json, or -")
    injected.add_argument("device", nargs="+", help="VENDOR/CLASS=NAME, or a pattern such as 'vendor.com/gpu=*'")
    resolved = command("resolve", _resolve, "an OCI spec with the devices in it that its linux.devices name")
    resolved.add_argument("oci", type=Path, metavar="OCI-SPEC", help="a config.json, or -")
    watched = command("watch", _watch, "devices and errors as they come and go; ends when interrupted")
    watched.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="interval between two scans (default: 1)"
    )
    watched.add_argument("--changes", type=int, metavar="N", help="end after so many")
    explained = command(
        "explain", _explain, "in words, where a device comes from and what it does, or why it is missing"
    )
    explained.add_argument("device", help="VENDOR/CLASS=NAME")
    command("schema", _schema, "the JSON schema of spec files")
    return parser


def _cache(arguments: _Arguments) -> Cache:
    cache = Cache(arguments.directories or DEFAULT_DIRECTORIES, semantics=arguments.semantics)
    for path, errors in cache.catalog.errors.items():
        print(f"cdi: {path}: {errors[0]}", file=sys.stderr)
    return cache


def _names(attribute: str, arguments: _Arguments) -> Iterator[CommandResult]:
    names = list(getattr(_cache(arguments).catalog, attribute))
    yield CommandResult(data=names, lines=names)


def _specs(arguments: _Arguments) -> Iterator[CommandResult]:
    catalog = _cache(arguments).catalog
    files = [file for vendor in arguments.vendor or [None] for file in catalog.specs(vendor)]
    yield CommandResult(
        data=[{"path": str(file.path), "spec": to_document_unchecked(file.spec)} for file in files if file.spec],
        lines=[f"{file.path}: {file.spec.kind}, {_counted(len(file.spec.devices))}" for file in files if file.spec],
    )


def _counted(devices: int) -> str:
    return "1 device" if devices == 1 else f"{devices} devices"


def _directories(arguments: _Arguments) -> Iterator[CommandResult]:
    cache = _cache(arguments)
    rows = [
        {"path": str(path), "priority": priority, "exists": path.is_dir()}
        for priority, path in enumerate(cache.directories)
    ]
    yield CommandResult(
        data=rows,
        lines=[f"{row['path']} priority {row['priority']}{'' if row['exists'] else ', not there'}" for row in rows],
    )


def _validate(arguments: _Arguments) -> Iterator[CommandResult]:
    paths, directories, conflicts = arguments.file, {}, {}
    if not paths:
        catalog = Cache(arguments.directories or DEFAULT_DIRECTORIES, semantics=arguments.semantics).catalog
        paths = [file.path for file in catalog.files]
        directories = {str(path): error for path, error in catalog.directory_errors.items()}
        conflicts = {device: [str(path) for path in found] for device, found in catalog.conflicts.items()}
    documents = {str(path): _document(path, arguments) for path in paths}
    lines = [f"{path}: error: {error}" for path, error in directories.items()]
    for device, rivals in conflicts.items():
        lines.append(f"{device}: error: {', '.join(rivals)} define it with equal priority, so it is not available")
    for path, document in documents.items():
        lines += [f"{path}: {finding}" for finding in document.findings] or [f"{path}: ok"]
    is_right = not directories and not conflicts and all(document.is_valid for document in documents.values())
    files = [_file_report(path, document) for path, document in documents.items()]
    data = {"files": files, "directories": directories, "conflicts": conflicts}
    yield CommandResult(data=data, lines=lines, status=0 if is_right else 1)


def _document(path: Path, arguments: _Arguments) -> Document:
    data = _read_input(path)
    if isinstance(data, Finding):
        return Document(spec=None, findings=(data,))
    return read(data, semantics=None if arguments.strict else arguments.semantics)


def _file_report(path: str, document: Document) -> dict[str, Any]:
    version = str(minimum_version(document.spec)) if document.spec else None
    findings = [asdict(finding) for finding in document.findings]
    return {"path": path, "valid": document.is_valid, "minimumVersion": version, "findings": findings}


def _inject(arguments: _Arguments) -> Iterator[CommandResult]:
    oci, cache = _oci_spec(arguments.oci), _cache(arguments)
    names = [name for pattern in arguments.device for name in _matching(pattern, cache)]
    yield _document_answer(inject(cache, oci, names))


def _matching(pattern: str, cache: Cache) -> Sequence[str]:
    """Return the devices that match a shell pattern; one without matches counts as a name, which is missing."""
    return [name for name in cache.catalog.devices if fnmatch.fnmatchcase(name, pattern)] or [pattern]


def _resolve(arguments: _Arguments) -> Iterator[CommandResult]:
    oci, cache = _oci_spec(arguments.oci), _cache(arguments)
    linux = oci.get("linux")
    devices = (linux.get("devices") if isinstance(linux, dict) else None) or []
    names = [device["path"] for device in devices if _is_name(device)]
    if names:
        oci = {**oci, "linux": {**oci["linux"], "devices": [device for device in devices if not _is_name(device)]}}
    yield _document_answer(inject(cache, oci, names))


def _is_name(device: object) -> bool:
    try:
        QualifiedName.parse(device["path"] if isinstance(device, dict) else "")
    except (InvalidNameError, KeyError, AttributeError):
        return False
    return True


def _oci_spec(path: Path) -> OCISpec:
    data = _read_input(path)
    if isinstance(data, Finding):
        raise UnreadableError(f"{path}: no OCI spec: {data.message}")
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"{path}: no OCI spec: it has more than {MAX_BYTES} bytes")
    try:
        oci = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: no OCI spec: {error}") from error
    if not isinstance(oci, dict):
        raise UnreadableError(f"{path}: no OCI spec: it is no JSON object")
    return oci


def _read_input(path: Path) -> bytes | Finding:
    """Return the content of a file, or of standard input, up to a byte more than is accepted."""
    return sys.stdin.buffer.read(MAX_BYTES + 1) if path == _STDIN else read_file(path)


def _document_answer(document: OCISpec) -> CommandResult:
    return CommandResult(data=document, lines=[to_json(document)])


def _watch(arguments: _Arguments) -> Iterator[CommandResult]:
    cache = Cache(arguments.directories or DEFAULT_DIRECTORIES, semantics=arguments.semantics)
    yield _change(compare_catalogs(Catalog(files=(), directory_errors={}), cache.catalog))
    changes = watch(cache, interval_s=arguments.interval, sleep=arguments.sleep)
    yield from map(_change, itertools.islice(changes, arguments.changes))


def _change(change: Difference) -> CommandResult:
    marked = (("+", change.added), ("-", change.removed), ("~", change.changed))
    errors = {str(path): list(found) for path, found in change.errors.items()}
    lines = [f"{mark} {name}" for mark, names in marked for name in names]
    lines += [f"! {path}: {error}" for path, found in errors.items() for error in found]
    data = {"added": change.added, "removed": change.removed, "changed": change.changed, "errors": errors}
    return CommandResult(data=data, lines=lines)


def _explain(arguments: _Arguments) -> Iterator[CommandResult]:
    catalog, name = _cache(arguments).catalog, arguments.device
    found = catalog.devices.get(name)
    if found is None:
        reason = catalog.why_missing(name, arguments.semantics)
        line = f"{name} is not available: {reason}"
        yield CommandResult(data={"name": name, "missing": reason}, lines=[line], status=1)
        return
    lines = list(describe_device(catalog, name))
    data = {
        "name": name,
        "path": str(found.file.path),
        "spec": to_document_unchecked(found.spec),
        "minimumVersion": str(minimum_version(found.spec)),
        "explanation": lines,
    }
    yield CommandResult(data=data, lines=lines)


def _schema(_arguments: _Arguments) -> Iterator[CommandResult]:
    yield _document_answer(schema())


def _printed(answer: CommandResult, output: str) -> str:
    match output:
        case "json":
            return to_json(answer.data)
        case "yaml":
            return to_yaml(answer.data)
        case _:
            return "\n".join(answer.lines)
