"""What the controller knows of claims: the newest of what caches and the server's answers say."""

from api.model.names import ObjectRef
from driver.controller.classic.usage import holdings_in
from driver.kube.store import ObjectChange
from tests.controller.classic.scene import Scene, claim
from tests.controller.classic.test_claims import HELD
from tests.controller.classic.test_interchangeable_nodes import allocation
from tests.controller.classic.test_reconciler import ALLOCATE, CLAIM, Play


def forget(scene: Scene, name: str) -> None:
    ref = ObjectRef("ns", name)
    old = scene.caches.claims.get(ref)
    scene.caches.claims.remove(ref)
    scene.world.on_claim(ObjectChange(ref, old, None))


def test_the_newer_of_cache_and_answer_counts() -> None:
    scene = Scene()
    scene.claim(version="5")
    scene.world.note(claim(version="9", allocation=HELD))
    assert scene.world.holdings.on("n1")
    scene.claim(version="7")
    assert scene.world.claim(CLAIM) == claim(version="9", allocation=HELD)
    scene.claim(version="10")
    assert scene.world.claim(CLAIM) == claim(version="10")
    assert not scene.world.holdings.on("n1")
    scene.world.note(claim(version="9", allocation=HELD))
    assert not scene.world.holdings.on("n1")


def test_an_answer_about_a_claim_that_no_cache_has_yet_counts() -> None:
    scene = Scene()
    scene.world.note(claim(allocation=HELD))
    assert scene.world.holdings.on("n1")
    scene.claim(version="2", allocation=HELD)
    forget(scene, "claim")
    assert not scene.world.holdings.on("n1")


def test_an_answer_that_comes_after_the_claims_end_holds_nothing() -> None:
    """The claim is allocated, stripped of its finalizer and deleted, and the watch is faster than the answer."""
    play = Play()
    play.claim(immediate=True)
    work = play.syncing.sync_claim(CLAIM)
    stop = work.send(None)
    while (stop.call, stop.when) != (ALLOCATE, "after"):
        stop = work.send(None)
    play.server.change("claim", metadata={"finalizers": None})
    play.server.delete("claim")
    forget(play.scene, "claim")
    try:
        work.send(None)
    except StopIteration:
        pass
    assert not play.scene.world.holdings.on("n1")


def test_what_is_written_while_it_is_still_reserved_counts_once() -> None:
    """Nor is the node looked at again for it."""
    scene = Scene()
    scene.node("n1")
    held = allocation("n1", "gpu-0-1g-10gb-me-at-0")
    scene.world.reserve(scene.claim(), holdings_in(held.devices.results))
    reserved = scene.world.state("n1")
    scene.world.note(claim(version="9", allocation=held))
    assert scene.world.state("n1") is reserved
    scene.world.holdings.unreserve(claim().metadata.uid)
    assert scene.world.state("n1") is reserved
    scene.claim(version="10")
    assert scene.world.state("n1").free != reserved.free
