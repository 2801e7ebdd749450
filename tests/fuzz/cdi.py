"""Fuzzes a spec directory: with any bytes in a file, its errors are reported and other files are read."""

from pathlib import Path

from kerf_dra.cdi import (
    Cache,
    CDIError,
    ContainerEdits,
    Device,
    HostDeviceError,
    HostNode,
    Kind,
    Spec,
    Store,
    encode_json,
    inject,
    read,
    validate,
)
from kerf_dra.cdi.description import describe_device
from kerf_dra.cdi.document.rules import CONTENT, READING
from tests.oracle.cdi.mutations import generate_mutated_document

generated = generate_mutated_document

_KEPT = "acme.io/kept=here"
_CODES = {*CONTENT, *READING}


class _NoHost:
    """A machine without devices, so that no input depends on what this one has."""

    def node(self, path: str) -> HostNode:
        raise HostDeviceError(path, "host-missing", "there are none")


class Target:
    """A spec directory with a valid file, and beside it the input."""

    def __init__(self, folder: Path) -> None:
        edits = ContainerEdits(env=("KEPT=1",))
        kept = Spec(kind=Kind.parse("acme.io/kept"), devices=(Device(name="here", container_edits=edits),))
        Store(folder).write("kept", kept)
        self._input = folder / "input.yaml"
        self._cache = Cache([folder])

    def __call__(self, data: bytes) -> None:
        self._judge_document(data)
        self._judge_directory(data)

    def _judge_document(self, data: bytes) -> None:
        document = read(data)
        assert {finding.code for finding in document.findings} <= _CODES
        assert all(str(finding).isprintable() for finding in document.findings)
        assert document.is_valid or any(finding.severity == "error" for finding in document.findings)
        if document.spec is not None and not _errors(document.spec):
            written = read(encode_json(document.spec))
            assert written.spec is not None
            assert _unversioned(written.spec) == _unversioned(document.spec)

    def _judge_directory(self, data: bytes) -> None:
        self._input.unlink(missing_ok=True)
        self._input.write_bytes(data)
        self._cache.refresh()
        catalog = self._cache.catalog
        (document,) = (file.document for file in catalog.files if file.path == self._input)
        assert (self._input in catalog.errors) is (not document.is_valid or bool(catalog.conflicts))
        assert _KEPT in catalog.devices or _KEPT in catalog.conflicts
        for name in catalog.devices:
            assert list(describe_device(catalog, name))
            try:
                inject(self._cache, {"ociVersion": "1.2.0"}, [name], host=_NoHost())
            except HostDeviceError:
                pass
        try:
            inject(self._cache, {}, [data.decode(errors="replace")], host=_NoHost())
        except CDIError:
            pass


target = Target


def _errors(spec: Spec) -> bool:
    return any(finding.severity == "error" for finding in validate(spec))


def _unversioned(spec: Spec) -> object:
    return (spec.kind, spec.devices, spec.container_edits, spec.annotations)
