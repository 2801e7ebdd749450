"""Which devices the scheduler gives to which pods: the same on both, the first that fit as published (KEP-4381)."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.contract.conftest import NODES
from tests.contract.documents import DRIVER, RESOURCE, claim, device_class, exactly, pod, slice_of, template
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document

PARENT: Final = f"{DRIVER}/parent"
UNITS: Final = 4
"""Memory units of a card: four small partitions, two halves, or the whole."""


def device(card: int, name: str, first: int, units: int) -> Document:
    counters = {f"unit{number}": {"value": "1"} for number in range(first, first + units)}
    return {
        "name": f"card{card}-{name}-{first}",
        "attributes": {"parent": {"string": f"card{card}"}, "size": {"string": name}},
        "capacity": {"memory": {"value": f"{units}Gi"}},
        "consumesCounters": [{"counterSet": f"card{card}", "counters": counters}],
    }


def partitions(card: int) -> list[Document]:
    """Smallest first: the scheduler takes the first that fits."""
    small = [device(card, "small", first, 1) for first in range(UNITS)]
    halves = [device(card, "half", first, 2) for first in (0, 2)]
    return [*small, *halves, device(card, "whole", 0, UNITS)]


def slices() -> list[Document]:
    """Two cards on the first node, which is all there is."""
    pool = {"name": "cards", "generation": 1, "resourceSliceCount": 2}
    units = {f"unit{number}": {"value": "1"} for number in range(UNITS)}
    counters = slice_of("0-counters", NODES[0], [], pool=pool)
    counters["spec"]["sharedCounters"] = [{"name": f"card{card}", "counters": units} for card in range(2)]
    del counters["spec"]["devices"]
    return [counters, slice_of("1-devices", NODES[0], [*partitions(0), *partitions(1)], pool=pool)]


def of_size(size: str) -> str:
    return f'device.attributes["{DRIVER}"].size == "{size}"'


class Pods:
    """Pods of one test, and what the scheduler made of them."""

    def __init__(self, api: Api, space: str) -> None:
        self.api = api
        self.space = space

    async def ask(self, name: str, *requests: Document, **devices: Any) -> None:
        """A pod with a claim of its own."""
        await self.api.create(template(name, self.space, *requests, **devices))
        await self.api.create(pod(name, self.space, devices={"resourceClaimTemplateName": name}))

    async def share(self, name: str, claim_name: str) -> None:
        """A pod with a claim that is there."""
        await self.api.create(pod(name, self.space, devices={"resourceClaimName": claim_name}))

    async def got(self, name: str) -> dict[str, str]:
        """Request to device, once the pod is bound to the node that has them."""

        async def is_bound() -> Document | None:
            found = await self.api.get("v1", "Pod", name, self.space)
            return found if found["spec"].get("nodeName") else None

        bound = await eventually(f"pod {name} is bound", is_bound, but=lambda: self.why(name))
        assert bound["spec"]["nodeName"] == NODES[0]
        results = (await self.claim_of(name))["status"]["allocation"]["devices"]["results"]
        assert {result["driver"] for result in results} == {DRIVER}
        return {result["request"]: result["device"] for result in results}

    async def waits(self, name: str) -> None:
        """Wait until the pod has a condition that no device is free."""

        async def is_told() -> bool:
            return "cannot allocate all claims" in await self.why(name)

        await eventually(f"pod {name} is told that it has to wait", is_told, but=lambda: self.why(name))
        found = await self.api.get("v1", "Pod", name, self.space)
        assert "nodeName" not in found["spec"]

    async def end(self, name: str) -> None:
        await self.api.delete("v1", "Pod", name, self.space, grace_s=0)

    async def claim_of(self, name: str) -> Document:
        found = await self.api.get("v1", "Pod", name, self.space)
        (entry,) = found["spec"]["resourceClaims"]
        (made,) = found["status"].get("resourceClaimStatuses") or [entry]
        return await self.api.get(RESOURCE, "ResourceClaim", made["resourceClaimName"], self.space)

    async def why(self, name: str) -> str:
        """The condition and the events that say why the pod is not bound."""
        found = await self.api.get("v1", "Pod", name, self.space)
        conditions = [one for one in found["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
        events = await self.api.list("v1", "Event", self.space, fieldSelector=f"involvedObject.name={name}")
        said = [one["message"] for one in events if one["reason"] == "FailedScheduling"]
        return "\n".join([*(one.get("message", "") for one in conditions), *said])


@pytest.fixture(scope="module")
async def stocked(cluster: Api) -> Api:
    """The cluster with devices, and a class for each size."""
    for document in slices():
        await cluster.create(document)
    for size in ("small", "half", "whole"):
        await cluster.create(device_class(size, of_size(size)))
    return cluster


@pytest.fixture
async def pods(stocked: Api, busy_space: str) -> AsyncIterator[Pods]:
    yield Pods(stocked, busy_space)
    for one in await stocked.list("v1", "Pod", busy_space):
        await stocked.delete("v1", "Pod", one["metadata"]["name"], busy_space, grace_s=0)

    async def is_free() -> bool:
        claims = await stocked.list(RESOURCE, "ResourceClaim", busy_space)
        return not any("allocation" in one.get("status", {}) for one in claims)

    await eventually("all claims are deallocated", is_free)


async def test_a_pod_gets_a_claim_of_its_own_and_the_first_device_that_fits(pods: Pods) -> None:
    await pods.ask("p", exactly("r", "small"))
    assert await pods.got("p") == {"r": "card0-small-0"}
    made = await pods.claim_of("p")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)
    assert made["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert [(one["resource"], one["name"]) for one in made["status"]["reservedFor"]] == [("pods", "p")]
    (term,) = made["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [NODES[0]]}]
    await pods.end("p")

    async def is_gone() -> bool:
        return not await pods.api.list(RESOURCE, "ResourceClaim", pods.space)

    await eventually("the claim is gone with its pod", is_gone)


async def test_pods_that_share_a_claim_share_its_device(pods: Pods) -> None:
    await pods.api.create(claim("shared", pods.space, exactly("r", "small")))
    for name in ("one", "two"):
        await pods.share(name, "shared")
    assert await pods.got("one") == await pods.got("two") == {"r": "card0-small-0"}
    made = await pods.claim_of("one")
    assert {one["name"] for one in made["status"]["reservedFor"]} == {"one", "two"}


async def test_a_claim_is_free_again_when_its_last_pod_goes(pods: Pods) -> None:
    await pods.api.create(claim("shared", pods.space, exactly("r", "small")))
    await pods.share("one", "shared")
    await pods.got("one")
    await pods.end("one")

    async def is_free() -> bool:
        found = await pods.api.get(RESOURCE, "ResourceClaim", "shared", pods.space)
        return "allocation" not in found.get("status", {})

    await eventually("the claim is deallocated", is_free)


async def test_devices_match_in_an_attribute_or_differ_in_it(pods: Pods) -> None:
    await pods.ask("s", exactly("r", "small"))
    assert await pods.got("s") == {"r": "card0-small-0"}
    both = [exactly("a", "half"), exactly("b", "half")]
    await pods.ask("same", *both, constraints=[{"requests": ["a", "b"], "matchAttribute": PARENT}])
    assert await pods.got("same") == {"a": "card1-half-0", "b": "card1-half-2"}
    await pods.end("same")
    await pods.end("s")
    await pods.ask("apart", *both, constraints=[{"requests": ["a", "b"], "distinctAttribute": PARENT}])
    assert {one.partition("-")[0] for one in (await pods.got("apart")).values()} == {"card0", "card1"}


async def test_what_is_taken_excludes_what_overlaps_it(pods: Pods) -> None:
    for number in range(2 * UNITS - 1):
        await pods.ask(f"s{number}", exactly("r", "small"))
        card, first = divmod(number, UNITS)
        assert await pods.got(f"s{number}") == {"r": f"card{card}-small-{first}"}
    await pods.ask("h", exactly("r", "half"))
    await pods.waits("h")
    await pods.end("s1")
    await pods.ask("s", exactly("r", "small"))
    assert await pods.got("s") == {"r": "card0-small-1"}
    await pods.end("s6")
    assert await pods.got("h") == {"r": "card1-half-2"}


@pytest.mark.parametrize(("first", "second"), [("small", "whole"), ("whole", "small")])
async def test_a_whole_card_and_its_parts_exclude_each_other(pods: Pods, first: str, second: str) -> None:
    await pods.ask("both", exactly("a", first), exactly("b", first), constraints=[APART])
    await pods.got("both")
    await pods.ask("next", exactly("r", second, count=2 if second == "whole" else 1))
    await pods.waits("next")
    await pods.end("both")
    await pods.got("next")


async def test_a_size_is_asked_for_in_cel(pods: Pods) -> None:
    at_least = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("2Gi")) >= 0'
    await pods.api.create(device_class(f"{pods.space}-size", at_least))
    for name, device_name in {"p0": "card0-half-0", "p1": "card0-half-2", "p2": "card1-half-0"}.items():
        await pods.ask(name, exactly("r", f"{pods.space}-size"))
        assert await pods.got(name) == {"r": device_name}


async def test_the_first_alternative_that_there_is_is_taken(pods: Pods) -> None:
    either = {
        "name": "r",
        "firstAvailable": [{"name": size, "deviceClassName": size} for size in ("whole", "half")],
    }
    for name, taken in {"p0": "card0-whole-0", "p1": "card1-whole-0"}.items():
        await pods.ask(name, either)
        assert await pods.got(name) == {"r/whole": taken}
    await pods.end("p1")
    await pods.ask("s", exactly("r", "small"))
    assert await pods.got("s") == {"r": "card1-small-0"}
    await pods.ask("p2", either)
    assert await pods.got("p2") == {"r/half": "card1-half-2"}


async def test_an_attribute_that_is_missing_stops_the_whole_pod(pods: Pods) -> None:
    await pods.api.create(device_class(f"{pods.space}-odd", f'device.attributes["{DRIVER}"].flavour == "odd"'))
    await pods.ask("p", exactly("r", f"{pods.space}-odd"))

    async def says_why() -> bool:
        return "flavour" in await pods.why("p")

    await eventually("the pod is told of the missing attribute", says_why, but=lambda: pods.why("p"))


APART: Final = {"requests": ["a", "b"], "distinctAttribute": PARENT}
