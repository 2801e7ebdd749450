"""Claims of a user's manifests, of which a run makes copies: what is read, refused, and what the driver gets."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.sanity import call_order_rows
from kerf_dra.driver.sanity.allocated_claims import LABEL, AllocatedClaims
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.given_claims import MOST_CLAIMS, list_classes, read_claims
from kerf_dra.driver.sanity.rows import Outcome
from kerf_dra.driver.sanity.run import ROWS, run_rows
from tests.sanity.test_rows import COMMAND_IDS, toy_driver
from tests.sanity.toy_driver import DRIVER, NODE, ToyDriver

API = "resource.k8s.io/v1"
SLOW = {"opaque": {"driver": DRIVER, "parameters": {"speed": "slow"}}}
FAST = {"opaque": {"driver": DRIVER, "parameters": {"speed": "fast"}}}


def exact(name: str, of: str = "toys", count: int = 1) -> JsonObject:
    return {"name": name, "exactly": {"deviceClassName": of, "count": count}}


def claim(requests: Sequence[JsonObject], config: Sequence[JsonObject] = (), api: str = API) -> JsonObject:
    devices = {"requests": [*requests], "config": [*config]}
    return {"apiVersion": api, "kind": "ResourceClaim", "metadata": {"name": "mine"}, "spec": {"devices": devices}}


def template(requests: Sequence[JsonObject]) -> JsonObject:
    spec = {"spec": {"devices": {"requests": [*requests]}}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "ours"}, "spec": spec}


GOOD = claim([exact("left")], [{"requests": ["left"], **FAST}])
ALTERNATIVES = {
    "name": "right",
    "firstAvailable": [
        {"name": "many", "deviceClassName": "toys", "count": 9},
        {"name": "one", "deviceClassName": "toys"},
    ],
}


def numbered(*bodies: JsonObject) -> list[tuple[int, JsonObject]]:
    return list(enumerate(bodies, start=1))


@asynccontextmanager
async def toy_with(*bodies: JsonObject, fault: str = "") -> AsyncIterator[tuple[ToyDriver, DriverUnderTest]]:
    """A driver with two devices of class ``toys``, whose test makes copies of claims."""
    async with toy_driver(fault) as (toy, driver):
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        value = {"metadata": {"name": "toys"}, "spec": {"selectors": [selector], "config": [SLOW]}}
        await toy.client.apply(toy.api.resource.device_classes, value, field_manager="administrator")
        given = read_claims("mine.yaml", numbered(*bodies))
        claims = AllocatedClaims(toy.client, toy.api, driver=DRIVER, node=NODE, namespace="default", given=given)
        yield toy, replace(driver, claims=claims)


async def list_claims(toy: ToyDriver) -> Sequence[ResourceClaim]:
    return (await toy.client.list(toy.api.resource.resource_claims)).items


async def test_copies_have_the_config_of_their_class_and_of_the_manifest_in_their_allocation() -> None:
    async with toy_with(GOOD, template([ALTERNATIVES])) as (toy, driver), driver.claims.allocated(2) as made:
        copies = {each.metadata.name: each for each in await list_claims(toy)}
        assert len(copies) == 2
        first, second = (copies[each.name] for each in made)
        allocations = [each.status.allocation for each in (first, second)]
        assert [
            [(entry.source, entry.opaque and entry.opaque.parameters) for entry in each.devices.config]
            for each in allocations
            if each is not None
        ] == [[("FromClass", {"speed": "slow"}), ("FromClaim", {"speed": "fast"})], [("FromClass", {"speed": "slow"})]]
        assert [result.request for each in allocations if each for result in each.devices.results] == [
            "left",
            "right/one",
        ]
        assert all(name.startswith("kerf-sanity-") for name in copies)
        assert {each.metadata.labels[LABEL] for each in copies.values()} == {DRIVER}


async def test_the_third_claim_of_a_row_is_as_the_first_manifest_again() -> None:
    async with toy_with(GOOD, template([ALTERNATIVES])) as (toy, driver):
        for _ in range(2):
            async with driver.claims.allocated(1, at_most=MOST_CLAIMS):
                requests = [each.spec.devices.requests[0].name for each in await list_claims(toy)]
                assert sorted(requests) == ["left", "right"]  # devices do not suffice for a third one
        specs = [driver.claims._choose_spec(number).devices.requests[0].name for number in range(3)]
        assert specs == ["left", "right", "left"]


async def test_a_driver_that_works_meets_the_rows_with_claims_of_its_own_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_order_rows, "_AGAIN_S", 1.0)
    async with toy_with(template([ALTERNATIVES]), GOOD) as (toy, driver):
        await driver.claims.check_given()
        results = [result async for result in run_rows(driver, ROWS) if result.row.id not in COMMAND_IDS]
        assert [(each.row.id, each.outcome, each.seen) for each in results if each.outcome is not Outcome.PASSED] == []
        assert await list_claims(toy) == ()


async def test_a_claim_for_two_devices_is_prepared_with_both_and_rows_that_need_two_claims_are_not_tried() -> None:
    async with toy_with(claim([exact("both", count=2)])) as (_, driver):
        rows = [row for row in ROWS if row.id in {"PREPARE-1", "PREPARE-12"}]
        found = [(result.outcome, result.seen) async for result in run_rows(driver, rows)]
    assert [outcome for outcome, _ in found] == [Outcome.PASSED, Outcome.SKIPPED]
    assert found[1][1].startswith(f"{DRIVER} has no free device on {NODE} for another claim: request both: ")


async def test_a_device_in_the_wrong_pool_is_caught_with_copies_too() -> None:
    async with toy_with(template([ALTERNATIVES]), fault="PREPARE-1") as (_, driver):
        [result] = [result async for result in run_rows(driver, [row for row in ROWS if row.id == "PREPARE-1"])]
    assert result.outcome is Outcome.FAILED
    assert "wrong/toy-0 for request right" in result.seen


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ((), "mine.yaml: has no claim: write ResourceClaims or ResourceClaimTemplates"),
        ((GOOD,) * (MOST_CLAIMS + 1), "mine.yaml: has 9 claims: a row uses 8 at most"),
        (
            (GOOD, {"apiVersion": "v1", "kind": "Pod"}),
            "mine.yaml: document 2: kind: Pod of v1 is no claim: leave it out",
        ),
        (({**GOOD, "kind": "DeviceClass"},), "document 1: kind: DeviceClass of resource.k8s.io/v1 is no claim"),
        (
            (GOOD, claim([{"name": "left", "deviceClassName": "toys"}])),
            "document 2: spec.devices.requests[0].deviceClassName: unknown field; v1 has it below",
        ),
        ((claim([]),), "document 1: spec.devices.requests: is empty"),
        ((template([]),), "document 1: spec.spec.devices.requests: is empty"),
        (({"apiVersion": API, "kind": "ResourceClaim", "spec": []},), "document 1: spec: "),
        (({**GOOD, "apiVersion": "resource.k8s.io/v9"},), "document 1: apiVersion: "),
    ],
)
def test_what_is_wrong_with_the_manifests_is_said_with_document_and_field(
    bodies: Sequence[JsonObject], message: str
) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        read_claims("mine.yaml", numbered(*bodies))
    assert message in str(caught.value)


def test_a_claim_of_an_earlier_version_is_read_as_that_of_v1() -> None:
    flat = claim([{"name": "left", "deviceClassName": "toys"}], api="resource.k8s.io/v1beta1")
    new = claim([{"name": "left", "exactly": {"deviceClassName": "toys"}}])
    [old_spec, new_spec] = [each.spec for each in read_claims("mine.yaml", numbered(flat, new))]
    assert old_spec == new_spec


def test_classes_of_alternatives_are_found_with_their_fields() -> None:
    [given] = read_claims("mine.yaml", numbered(claim([exact("left", "large"), ALTERNATIVES])))
    assert list_classes(given.spec) == {
        "spec.devices.requests[0].exactly.deviceClassName": "large",
        "spec.devices.requests[1].firstAvailable[0].deviceClassName": "toys",
        "spec.devices.requests[1].firstAvailable[1].deviceClassName": "toys",
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            claim([exact("left"), exact("other", "unknown")]),
            "spec.devices.requests[1].exactly.deviceClassName: the cluster has no DeviceClass unknown: apply it before",
        ),
        (claim([exact("left"), exact("left")]), "spec.devices.requests[1]: Duplicate value: "),
    ],
)
async def test_a_claim_that_the_cluster_cannot_take_ends_the_run_before_its_first_row(
    body: Mapping[str, Any], message: str
) -> None:
    async with toy_with(GOOD, dict(body)) as (toy, driver):
        with pytest.raises(InvalidDocumentError) as caught:
            await driver.claims.check_given()
        assert message in str(caught.value)
        assert str(caught.value).startswith("mine.yaml: document 2: ")
        assert await list_claims(toy) == ()
