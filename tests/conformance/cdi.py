"""Records of what the Go library of container-device-interface answers, and whether ``cdi`` answers the same.

A record has an ``op`` with its input, the answer ``go_v1.1.0`` of release 1.1.0 and, where that differs, the answer
``go_main_05ae4b5`` of the main branch. ``error`` in an answer is one word for the reason, compared with the codes of
our findings where it is one of them. An answer with ``panic`` means a crash: the document must be refused.
"""

import base64
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from kerf_dra.cdi import (
    Cache,
    CDIError,
    Document,
    Host,
    HostDeviceError,
    HostNode,
    InvalidNameError,
    Kind,
    QualifiedName,
    Semantics,
    UnresolvedError,
    inject,
    read,
    transient_name,
)
from kerf_dra.cdi.document.encoder import to_document_unchecked
from kerf_dra.cdi.document.rules import CONTENT, READING
from kerf_dra.cdi.names import annotation_key, parse_annotations
from kerf_dra.cdi.versions import version_that_readers_enforce

Record: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = dict[str, Any]

ANSWERS: tuple[tuple[Semantics, str], ...] = (("1.1", "go_v1.1.0"), ("main", "go_main_05ae4b5"))

_KNOWN_ERRORS = {*READING, *CONTENT, "unqualified", "annotation-key", "annotation-value", "unresolvable"}
_KNOWN_ERRORS |= {"host-missing", "host-not-device", "host-type-mismatch"}
# Codes of ours, and the words a record may have for the same. Where syntax ends and types begin is each parser's own.
_SYNONYMS = {"permissions-none": "device-permissions", "wrong-type": "syntax", "syntax": "wrong-type"}


def run(path: Path, arguments: Sequence[str]) -> tuple[int, int]:
    """Judge every record of ``path``; prints each disagreement. Returns how many passed and how many failed."""
    assert not arguments, f"no arguments are known: {arguments}"
    outcomes = Counter(agrees(record) for record in records(path))
    return outcomes[True], outcomes[False]


def agrees(record: Record) -> bool:
    """Whether we answer as the record says. Prints why not."""
    disagreements = list(compare(record))
    for disagreement in disagreements:
        print(f"{record['id']}: {disagreement}")
    return not disagreements


def records(path: Path) -> Iterator[Record]:
    """The records of a file. A line with ``about`` explains the file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "about" not in record:
            yield record


def compare(record: Record) -> Iterator[str]:
    """What our answer has that the other one has not, and the other way round."""
    for semantics, key in ANSWERS:
        theirs = record.get(key, record["go_v1.1.0"])
        ours = _OPERATIONS[record["op"]](record, semantics)
        yield from (f"{semantics}: {compare_catalogs}" for compare_catalogs in differences(ours, theirs))


def differences(ours: Answer, theirs: Record) -> Iterator[str]:
    """Where two answers to one record differ."""
    errors = ours.pop("errors", ())
    ok = bool(theirs.get("ok"))
    if ours["ok"] != ok:
        yield f"ours is {'accepted' if ours['ok'] else 'refused'} {list(errors)}, theirs is {theirs}"
        return
    error = theirs.get("error")
    if not ok and error in _KNOWN_ERRORS and error not in {*errors, *(_SYNONYMS.get(code) for code in errors)}:
        yield f"refused for {list(errors)}, theirs for {error}"
    for key in ours.keys() & theirs.keys() - {"ok", "error"}:
        if (_as_go(ours[key]) or None) != (_as_go(theirs[key]) or None):
            yield f"{key}: ours is {ours[key]}, theirs is {theirs[key]}"


def _as_go(value: object) -> object:
    """Without what Go leaves out when it writes its structs, and with the user it writes for every process."""
    if isinstance(value, dict):
        if "process" in value:
            value = {**value, "process": {"user": {"uid": 0, "gid": 0}, **value["process"]}}
        items = {key: _as_go(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in (None, [], "")}
    return [_as_go(item) for item in value] if isinstance(value, list) else value


class RecordedHost:
    """The host the records were made on, as far as they say."""

    _NODES = {
        "/dev/null": HostNode(type="c", major=1, minor=3, file_mode=0o666),
        "/dev/zero": HostNode(type="c", major=1, minor=5, file_mode=0o666),
    }

    def node(self, path: str) -> HostNode:
        return self._NODES.get(path) or Host().node(path)


def _parse(record: Record, semantics: Semantics) -> Answer:
    data = record["text"].encode() if "text" in record else base64.b64decode(record["data_b64"])
    return parsed(read(data, semantics=semantics))


def parsed(document: Document) -> Answer:
    """Our answer to a record that asks to read a document."""
    if document.spec is None or not document.is_valid:
        return {"ok": False, "errors": [one.code for one in document.findings if one.severity == "error"]}
    spec = {"containerEdits": {}, **to_document_unchecked(document.spec)}
    return {"ok": True, "spec": spec, "min_version": version_that_readers_enforce(document.spec)}


def _qualified_name(record: Record, semantics: Semantics) -> Answer:
    try:
        name = QualifiedName.parse(record["arg"][0], semantics)
    except InvalidNameError as error:
        return {"ok": False, "errors": [error.code]}
    return {"ok": True, "vendor": name.kind.vendor, "class": name.kind.class_name, "device": name.device}


def _annotation_key(record: Record, semantics: Semantics) -> Answer:
    try:
        return {"ok": True, "key": annotation_key(*record["arg"])}
    except InvalidNameError as error:
        return {"ok": False, "errors": [error.code]}


def _parse_annotations(record: Record, semantics: Semantics) -> Answer:
    try:
        keys, names = parse_annotations(record["ann"], semantics)
    except InvalidNameError as error:
        return {"ok": False, "errors": [error.code]}
    return {"ok": True, "keys": list(keys), "devices": [str(name) for name in names]}


def _transient(record: Record, semantics: Semantics) -> Answer:
    vendor, class_name, identity = record["arg"]
    return {"ok": True, "name": transient_name(Kind(vendor=vendor, class_name=class_name), identity)}


def injected(record: Record, semantics: Semantics) -> Answer:
    """Our answer to a record that asks to inject devices."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        directories = [root / str(priority) for priority in range(len(record["dirs"]))]
        for directory, files in zip(directories, record["dirs"], strict=True):
            directory.mkdir()
            for name, text in files.items():
                (directory / name).write_text(text, encoding="utf-8")
        cache = Cache(directories, semantics=semantics)
    answer: Answer = {
        "list": list(cache.catalog.devices),
        "files_with_errors": [str(path.relative_to(root)) for path in cache.catalog.errors],
    }
    try:
        oci = inject(cache, record["oci"], record["devices"], host=RecordedHost())
    except UnresolvedError as error:
        # Go names a device as often as it was asked for; we give each name one reason.
        unresolved = [name for name in record["devices"] if name in error.reasons]
        return {**answer, "ok": False, "errors": ["unresolvable"], "unresolved": unresolved}
    except HostDeviceError as error:
        return {**answer, "ok": False, "errors": [error.code]}
    except CDIError as error:
        return {**answer, "ok": False, "errors": [str(error)]}
    return {**answer, "ok": True, "oci": oci}


_OPERATIONS: Mapping[str, Callable[[Record, Semantics], Answer]] = {
    "parse": _parse,
    "qname": _qualified_name,
    "annkey": _annotation_key,
    "annparse": _parse_annotations,
    "transient": _transient,
    "inject": injected,
}
