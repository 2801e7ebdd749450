"""The values of a spec, and the consistency of all tables about them."""

import copy
import dataclasses
import pickle

from hypothesis import given

from kerf_dra.cdi import ContainerEdits, Device, IntelRdt, Spec
from kerf_dra.cdi.document.fields import FIELDS
from tests.cdi.strategies import EDITS, SPECS
from tests.conftest import COSTLY


def test_the_table_of_fields_lists_every_field_of_every_value() -> None:
    for value, rows in FIELDS.items():
        fields = {field.name for field in dataclasses.fields(value)}
        assert {row.attribute for row in rows} == fields, value
        assert len({row.key.lower() for row in rows}) == len(rows), value


def test_the_table_of_fields_says_which_have_no_default() -> None:
    for value, rows in FIELDS.items():
        for field in dataclasses.fields(value):
            row = next(row for row in rows if row.attribute == field.name)
            has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            assert row.required is not has_default or (value, field.name) == (Spec, "version")
            assert row.optional is (field.default is None and field.name != "version"), (value, field.name)


@COSTLY
@given(spec=SPECS)
def test_specs_are_values(spec: Spec) -> None:
    assert copy.deepcopy(spec) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(copy.deepcopy(spec)) == hash(spec)


@given(first=EDITS, second=EDITS, third=EDITS)
def test_edits_add_up(first: ContainerEdits, second: ContainerEdits, third: ContainerEdits) -> None:
    assert (first + second) + third == first + (second + third)
    assert ContainerEdits() + first == first == first + ContainerEdits()


def test_the_later_rdt_wins_whole() -> None:
    early = ContainerEdits(intel_rdt=IntelRdt(clos_id="a", mem_bw_schema="MB:0=50"))
    assert (early + ContainerEdits(intel_rdt=IntelRdt())).intel_rdt == IntelRdt()
    assert (early + ContainerEdits()).intel_rdt == early.intel_rdt


def test_edits_are_true_when_they_change_anything() -> None:
    assert not ContainerEdits()
    assert ContainerEdits(intel_rdt=IntelRdt())
    assert ContainerEdits(additional_gids=(0,))


def test_annotations_count_for_equality() -> None:
    edits = ContainerEdits(env=("A=b",))
    assert Device(name="w", container_edits=edits) != Device(name="w", container_edits=edits, annotations={"a": "b"})
