"""The JSON schema that is shipped."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from kerf_dra import cdi
from kerf_dra.cdi import Spec, read
from kerf_dra.cdi.cli import main
from kerf_dra.cdi.document.encoder import to_document
from kerf_dra.cdi.document.schema import schema
from tests.cdi.strategies import SPECS
from tests.conftest import COSTLY

SHIPPED = Path(cdi.__file__).parent / "schema.json"
DATA = Path(__file__).parents[1] / "data" / "cdi"
VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_shipped_schema_is_the_one_the_model_gives() -> None:
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == schema(), "python -m cdi schema > cdi/schema.json"


def test_the_command_line_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == SHIPPED.read_text(encoding="utf-8")


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@COSTLY
@given(spec=SPECS)
def test_it_takes_all_we_write(spec: Spec) -> None:
    VALIDATOR.validate(to_document(spec))


def plain(name: str) -> Any:
    import yaml

    return yaml.safe_load((DATA / name).read_bytes())


@pytest.mark.parametrize("name", ["good/gpu.json", "good/everything.yaml", "good/smallest.yaml"])
def test_it_takes_documents_that_are_right(name: str) -> None:
    VALIDATOR.validate(plain(name))


@pytest.mark.parametrize(
    "name",
    [
        "bad/wrong-everywhere.yaml",
        "bad/list.yaml",
        "bad/old-monitoring.json",
        "bad/crashes-readers.json",
        "bad/empty.yaml",
    ],
)
def test_it_refuses_documents_that_are_wrong(name: str) -> None:
    assert not VALIDATOR.is_valid(plain(name))


def mutations() -> list[tuple[str, Any]]:
    """Yield single changes of a valid document that make it invalid."""
    return [
        ("cdiVersion", "0.9.0"),
        ("kind", "widget"),
        ("kind", "a/widget"),
        ("devices", []),
        ("devices", [None]),
        ("devices.0.name", "a b"),
        ("devices.0.containerEdits", {}),
        ("devices.0.containerEdits.env", ["A"]),
        ("devices.0.containerEdits.deviceNodes.0.path", "dev"),
        ("devices.0.containerEdits.deviceNodes.0.permissions", "rx"),
        ("devices.0.containerEdits.deviceNodes.0.fileMode", "0660"),
        ("devices.0.containerEdits.deviceNodes.0.uid", 2**32),
        ("devices.0.containerEdits.hooks.0.hookName", "later"),
        ("devices.0.containerEdits.hooks.0.timeout", 0),
        ("devices.0.containerEdits.mounts.0.options", "ro"),
        ("devices.0.containerEdits.netDevices.0.name", "x" * 16),
        ("devices.0.containerEdits.intelRdt.closID", "a/b"),
        ("devices.0.containerEdits.additionalGids", [-1]),
        ("annotations", {"a": [1]}),
        ("more", "x"),
    ]


@pytest.mark.parametrize(("path", "value"), mutations())
def test_what_it_refuses_we_refuse_too(path: str, value: Any) -> None:
    document = plain("good/everything.yaml")
    *way, last = path.split(".")
    place = document
    for key in way:
        place = place[int(key)] if key.isdigit() else place[key]
    place[last] = value
    assert not VALIDATOR.is_valid(document)
    strict = read(json.dumps(document).encode(), semantics=None)
    assert not strict.is_valid
