"""Claims of Kubernetes 1.31: the claim says who allocates, has several named requests, and parameters of its own."""

import pytest

from api.model.base import JsonObject
from api.model.classic import ClassicClaim, ClassicClaimSpec, ClassicClass, ClassicRequest
from api.model.metadata import ObjectMeta
from api.resource.v1alpha3 import KINDS
from driver.controller.classic.claims import ClaimPlan, plan_claim
from driver.controller.classic.outcomes import Outcome
from driver.controller.classic.scheduling_contexts import ContextPlan, plan_context
from tests.controller.classic.hardware import DRIVER
from tests.controller.classic.scene import Scene, context, pod

API = "kerf.dev/v1alpha1"


def parameters(spec: JsonObject, kind: str = "GpuClaimParameters") -> JsonObject:
    return {"apiVersion": API, "kind": kind, "spec": spec}


def claim(*requests: ClassicRequest, controller: str = DRIVER) -> ClassicClaim:
    metadata = ObjectMeta(name="claim", namespace="ns", uid="claim", resource_version="1")
    return ClassicClaim(metadata=metadata, spec=ClassicClaimSpec(requests=requests, controller=controller))


def small(name: str, **fields: object) -> ClassicRequest:
    return ClassicRequest(name=name, class_name="gpu", **fields)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    """One H100, and a class that leaves everything open."""
    scene = Scene()
    scene.node("n1")
    offer = parameters({"allowWhole": True}, "GpuClassParameters")
    scene.caches.classes.put(ClassicClass(metadata=ObjectMeta(name="gpu", uid="c"), parameters={DRIVER: offer}))
    return scene


def planned(scene: Scene, value: ClassicClaim) -> ContextPlan:
    scene.put_claim(value)
    return plan_context(context(selected="n1", potential=("n1",)), pod(), scene.world)


def test_every_device_is_for_a_request_that_the_claim_has(scene: Scene) -> None:
    # V-12
    wish = parameters({"profile": "2g.20gb"})
    value = claim(
        small("small", parameters=(parameters({"profile": "1g.10gb"}),)), small("two", parameters=(wish,), count=2)
    )
    (grant,) = planned(scene, value).grants
    results = KINDS.allocated(grant.allocation, DRIVER)["allocation"]["devices"]["results"]
    assert [result["request"] for result in results] == ["small", "two", "two"]
    assert len({result["device"] for result in results}) == 3
    assert {(result["driver"], result["pool"]) for result in results} == {(DRIVER, "n1/gpu")}


def test_the_claim_says_who_allocates_whatever_its_class(scene: Scene) -> None:
    # C-11, S-8, T-C wrong-driver of 1.31
    value = claim(small("a"), controller="other.example")
    assert planned(scene, value) == ContextPlan(rule="S-11", outcome=Outcome.PERIODIC)
    assert plan_claim(value, scene.world) == ClaimPlan(rule="C-11")


REFUSED = {
    'spec.profil: unknown field; did you mean "profile"?': small("a", parameters=(parameters({"profil": "1g.10gb"}),)),
    "request a: selectors, adminAccess: a claim of kerf.dev cannot have it": small(
        "a", unsupported=("selectors", "adminAccess")
    ),
    "class nowhere does not exist": ClassicRequest(name="a", class_name="nowhere"),
    "they are parameters of classes": small("a", parameters=(parameters({}, "GpuClassParameters"),)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_request_that_cannot_be_met_is_told_of(scene: Scene, message: str) -> None:
    # S-10, R-29
    found = planned(scene, claim(small("fine", parameters=(parameters({"profile": "1g.10gb"}),)), REFUSED[message]))
    assert (found.rule, found.grants) == ("S-10", ())
    assert message in found.complaints[0].message
