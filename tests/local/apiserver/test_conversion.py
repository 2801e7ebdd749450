"""Conversion of bodies between versions: nothing is lost, not even unknown fields."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.kinds.conversion import (
    claim_from_v1beta1,
    claim_to_v1beta1,
    event_from_events_group,
    event_to_events_group,
    slice_from_v1beta1,
    slice_to_v1beta1,
    template_from_v1beta1,
    template_to_v1beta1,
)

EXACT = st.fixed_dictionaries(
    {"deviceClassName": st.just("gpu")},
    optional={
        "count": st.integers(1, 3),
        "selectors": st.just([{"cel": {"expression": "true"}}]),
        "future": st.just(1),
    },
)
REQUESTS = st.one_of(
    st.fixed_dictionaries({"name": st.just("r"), "exactly": EXACT}),
    st.fixed_dictionaries({"name": st.just("r"), "firstAvailable": st.lists(EXACT, min_size=1, max_size=2)}),
)
SPECS = st.fixed_dictionaries(
    {"devices": st.fixed_dictionaries({"requests": st.lists(REQUESTS, max_size=3)}, optional={"future": st.just(2)})},
    optional={"future": st.just(3)},
)


@given(SPECS)
def test_a_claim_survives_the_flat_version(spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": "c"}, "spec": spec, "status": {"future": 4}}
    assert claim_from_v1beta1(claim_to_v1beta1(body)) == body


@given(SPECS)
def test_a_template_survives_the_flat_version(spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": "t"}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}
    assert template_from_v1beta1(template_to_v1beta1(body)) == body


DEVICES = st.fixed_dictionaries(
    {"name": st.just("d")}, optional={"attributes": st.just({"a": {"int": 1}}), "future": st.just(1)}
)


@given(st.lists(DEVICES, max_size=3))
def test_a_slice_survives_the_wrapped_version(devices: list[dict[str, Any]]) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "devices": devices, "future": 2}}
    wrapped = slice_to_v1beta1(body)
    assert all(device.keys() <= {"name", "basic"} for device in wrapped["spec"]["devices"])
    assert slice_from_v1beta1(wrapped) == body


def test_a_flat_request_carries_the_fields_of_exactly() -> None:
    body = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}}}
    flat = {"name": "r", "deviceClassName": "gpu", "count": 2}
    assert claim_to_v1beta1(body)["spec"]["devices"]["requests"] == [flat]


def test_a_flat_request_without_class_asks_for_nothing_exactly() -> None:
    body = {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": ""}]}}}
    assert claim_from_v1beta1(body)["spec"]["devices"]["requests"] == [{"name": "r"}]


def test_zero_places_of_the_wrapped_version_mean_unset() -> None:
    wrapped = {"spec": {"driver": "d", "nodeName": "", "allNodes": False}}
    assert slice_from_v1beta1(wrapped)["spec"] == {"driver": "d"}


def test_an_event_has_other_field_names_in_its_own_group() -> None:
    core = {
        "metadata": {"name": "e"},
        "involvedObject": {"name": "p"},
        "message": "m",
        "reason": "R",
        "count": 2,
        "firstTimestamp": "a",
        "lastTimestamp": "b",
        "source": {"component": "c"},
        "reportingComponent": "rc",
        "future": 1,
    }
    shown = event_to_events_group(core)
    assert shown["regarding"] == {"name": "p"}
    assert shown["note"] == "m"
    assert shown["reportingController"] == "rc"
    assert event_from_events_group(shown) == core
