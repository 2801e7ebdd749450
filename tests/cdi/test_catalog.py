"""Which definition of a device counts, and what is said about one that does not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.cdi import Catalog, ContainerEdits, Device, Document, Finding, Kind, SpecFile, read
from kerf_dra.cdi.catalog import Definition
from kerf_dra.cdi.spec import Spec

WIDGET, GADGET = "acme.io/widget", "acme.io/gadget"


def file(path: str, priority: int, kind: str, *devices: str) -> SpecFile:
    edits = ContainerEdits(env=(f"FROM={path}",))
    spec = Spec(
        version="0.5.0",
        kind=Kind.parse(kind),
        devices=tuple(Device(name=name, container_edits=edits) for name in devices),
    )
    return SpecFile(path=Path(path), priority=priority, document=Document(spec=spec, findings=()))


def broken(path: str, priority: int, text: str) -> SpecFile:
    return SpecFile(path=Path(path), priority=priority, document=read(text.encode()))


def catalog(*files: SpecFile) -> Catalog:
    return Catalog(files=files, directory_errors={})


def sources(found: Catalog) -> dict[str, str]:
    return {name: str(definition.file.path) for name, definition in found.devices.items()}


def test_the_directory_of_higher_priority_wins_silently() -> None:
    found = catalog(file("/low/a.json", 0, WIDGET, "w1", "w2"), file("/high/a.json", 1, WIDGET, "w1"))
    assert sources(found) == {f"{WIDGET}=w1": "/high/a.json", f"{WIDGET}=w2": "/low/a.json"}
    assert found.errors == {}
    assert [str(one.file.path) for one in found.definitions[f"{WIDGET}=w1"]] == ["/low/a.json", "/high/a.json"]


@pytest.mark.parametrize("priorities", [(0, 0, 1), (1, 1, 0)])
def test_two_of_one_priority_take_the_device_away_even_from_a_third(priorities: tuple[int, int, int]) -> None:
    files = [file(f"/{name}.json", priority, WIDGET, "w1") for name, priority in zip("abc", priorities, strict=True)]
    found = catalog(*files, file("/d.json", 0, WIDGET, "w2"))
    assert sources(found) == {f"{WIDGET}=w2": "/d.json"}
    assert found.conflicts == {f"{WIDGET}=w1": (Path("/a.json"), Path("/b.json"))}
    assert found.errors == {
        Path("/a.json"): (f"device {WIDGET}=w1 is also defined in /b.json; it is not available",),
        Path("/b.json"): (f"device {WIDGET}=w1 is also defined in /a.json; it is not available",),
    }


def test_vendors_classes_and_specs_are_those_of_usable_files() -> None:
    found = catalog(
        file("/b.json", 0, "zeta.io/widget", "w"),
        file("/a.json", 0, "acme.io/gadget", "w"),
        broken("/c.json", 0, '{"cdiVersion": "9.0.0", "kind": "late.io/thing", "devices": []}'),
    )
    assert found.vendors == ("acme.io", "zeta.io")
    assert found.classes == ("gadget", "widget")
    assert [str(one.path) for one in found.specs()] == ["/b.json", "/a.json"]
    assert [str(one.path) for one in found.specs("acme.io")] == ["/a.json"]
    assert list(found.errors) == [Path("/c.json")]


def test_errors_of_directories_and_files_stand_side_by_side() -> None:
    found = Catalog(
        files=(broken("/etc/cdi/a.json", 0, "{"),), directory_errors={Path("/var/run/cdi"): "cannot be read"}
    )
    assert list(found.errors) == [Path("/etc/cdi/a.json"), Path("/var/run/cdi")]


TOO_NEW = (
    '{"cdiVersion": "9.0.0", "kind": "acme.io/widget", "devices": [{"name": "w9", "containerEdits": {"env": ["A=b"]}}]}'
)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("w1", "'w1': a device is VENDOR/CLASS=NAME, as in vendor.com/gpu=0"),
        ("acme.io/widget=both", "defined with equal priority in /a.json, /b.json; keep one of them"),
        (
            "acme.io/widget=w9",
            "/new.json defines it but cannot be used: error: line 1, cdiVersion: '9.0.0' is none of",
        ),
        ("acme.io/widget=w3", "/a.json, /b.json has acme.io/widget=w1, acme.io/widget=w2"),
        ("acme.io/gadget=w1", "no file defines devices of kind acme.io/gadget; /new.json cannot be used"),
    ],
)
def test_a_missing_device_has_a_reason(name: str, reason: str) -> None:
    found = catalog(
        file("/a.json", 0, WIDGET, "w1", "both"),
        file("/b.json", 0, WIDGET, "w2", "both"),
        broken("/new.json", 0, TOO_NEW),
    )
    assert found.why_missing(name).startswith(reason)


def test_a_kind_whose_devices_are_all_in_conflict_has_none() -> None:
    found = catalog(file("/a.json", 0, WIDGET, "w1"), file("/b.json", 0, WIDGET, "w1"))
    assert found.why_missing(f"{WIDGET}=w2") == "/a.json, /b.json has no such device"
    assert catalog().why_missing(f"{WIDGET}=w2") == f"no file defines devices of kind {WIDGET}"


FILES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([WIDGET, GADGET]), st.sets(st.sampled_from("xyz"), min_size=1)),
    max_size=6,
).map(
    lambda rows: [
        file(f"/{priority}/{number}.json", priority, kind, *sorted(devices))
        for number, (priority, kind, devices) in enumerate(rows)
    ]
)


@given(files=FILES, data=st.data())
def test_the_order_in_which_files_are_found_changes_nothing(files: list[SpecFile], data: st.DataObject) -> None:
    ordered, shuffled = catalog(*files), catalog(*data.draw(st.permutations(files)))
    assert shuffled.devices == ordered.devices
    assert {name: set(paths) for name, paths in shuffled.conflicts.items()} == {
        name: set(paths) for name, paths in ordered.conflicts.items()
    }
    assert shuffled.errors.keys() == ordered.errors.keys()


@given(files=FILES)
def test_a_device_is_had_or_in_conflict_or_not_defined(files: list[SpecFile]) -> None:
    found = catalog(*files)
    assert found.devices.keys() | found.conflicts.keys() == found.definitions.keys()
    assert not found.devices.keys() & found.conflicts.keys()
    for name, definition in found.devices.items():
        assert isinstance(definition, Definition)
        assert str(definition.name) == name
        assert definition.file.priority == max(one.file.priority for one in found.definitions[name])


def test_a_file_with_an_error_has_no_spec() -> None:
    wrong = Document(spec=file("/a.json", 0, WIDGET, "w").spec, findings=(Finding(code="x", path="", message="no"),))
    assert SpecFile(path=Path("/a.json"), priority=0, document=wrong).spec is None
