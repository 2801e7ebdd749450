"""What proves to garbage collection that a claim has ended, where the API server contradicts itself or stands alone."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod, PodStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.cluster.claim_end import ANSWERS_ALONE
from tests.fakes.claims import CONSUMER, claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import GRACE_S, plugin_core, write_status
from tests.kubeletplugin.claims.test_garbage_collection import look

SLICE = "gpu-0-1g-1gb-at-0"


class Contradicting(FakeCluster):
    """A cluster that shows another claim than it has, or none, in its storage, its cache, or both."""

    storage: ResourceClaim | None = None
    cache: ResourceClaim | None = None
    lies = False

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        if not self.lies or claim.name != "training":
            return await super().read_claim(claim, not_older_than=not_older_than)
        return self.storage if not_older_than is None else self.cache


def at(version: int, *devices: str, uid: str = "", is_reserved: bool = True) -> ResourceClaim:
    """The claim ``training`` at a resource version."""
    made = claim("training", *devices, uid=uid, is_reserved=is_reserved)
    return replace(made, metadata=replace(made.metadata, resource_version=str(version)))


@pytest.mark.parametrize("lists_claims", [True, False], ids=["the kubelet lists claims", "it lists none"])
@pytest.mark.parametrize(
    ("storage", "cache", "why"),
    [
        (None, at(100, SLICE), "its cache has it in use"),
        (at(101), at(100, SLICE), "its cache has it in use"),
        (None, None, "a list has it in use"),
        (at(101, uid="another"), at(101, uid="another"), "a list has it in use"),
        (at(101, SLICE, is_reserved=False), at(101, SLICE, is_reserved=False), "a list has it in use"),
        (at(99), at(99), "it is shown at version 99, which is older than 100"),
        (at(100), at(100), "at the same version 100 it was in use"),
        (at(100, uid="another"), at(100, uid="another"), "at the same version 100 it was in use"),
    ],
    ids=[
        "absent in the storage alone",
        "deallocated in the storage alone",
        "absent and listed",
        "another one and listed",
        "unreserved and listed",
        "an older version",
        "the same version without an allocation",
        "another one at the same version",
    ],
)
async def test_an_end_that_the_api_server_itself_contradicts_takes_nothing_and_is_reported_once(
    storage: ResourceClaim | None, cache: ResourceClaim | None, why: str, lists_claims: bool, tmp_path: Path
) -> None:
    """An idle pod ran with the partition, and no process was on it: one GET that was wrong took it in 4 s."""
    cluster = Contradicting()
    async with plugin_core(tmp_path, cluster) as core:
        core.uses.lists_claims = lists_claims
        held = cluster.add(at(100, SLICE))
        other = cluster.add(claim("other", "gpu-1"))
        for each in (held, other):
            await core.preparer.prepare_claim(each)
        cluster.lies, cluster.storage, cluster.cache = True, storage, cache
        for number in range(0, 1200, 20):
            assert await look(core, number) == ["other", "training"]
        assert set(core.backend.made) == {SLICE, "gpu-1"}
        [(_, _, reason, message)] = cluster.reported
        assert (reason, core.state.noted["orphans"]) == ("ClaimOrphaned", 1)
        assert f"says the API server, and contradicts itself: {why}" in message
        assert set(core.orphaned.claim_uids) == {held.uid}
        cluster.lies = False
        for number in (1200, 1215):  # its cache is asked first, perhaps
            assert await look(core, number) == ["other", "training"]
        assert (set(core.orphaned.claim_uids), core.state.noted["orphans"]) == (set(), 2)
        cluster.remove(held)
        for number in range(ANSWERS_ALONE + 1):
            await look(core, 4000 + number * GRACE_S)
        assert set(core.backend.made) == {"gpu-1"}


@pytest.mark.parametrize("now", [None, at(101), at(101, uid="another"), at(101, SLICE, is_reserved=False)])
async def test_where_the_kubelet_lists_no_claims_an_end_is_proven_by_three_times_as_many_answers(
    now: ResourceClaim | None, tmp_path: Path
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        core.uses.lists_claims = False
        held = core.cluster.add(at(100, SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        if now is not None:
            core.cluster.add(now)
        for number in range(ANSWERS_ALONE - 1):
            assert await look(core, number * GRACE_S) == ["training"]
        assert await look(core, (ANSWERS_ALONE - 1) * GRACE_S) == []


@pytest.mark.parametrize(
    ("phase", "uid", "is_kept"),
    [("Running", CONSUMER.uid, True), ("Succeeded", CONSUMER.uid, False), ("Running", "another", False)],
    ids=["it runs", "it has ended", "it was made anew"],
)
async def test_where_the_kubelet_lists_no_claims_a_pod_that_has_not_ended_keeps_its_devices(
    phase: str, uid: str, is_kept: bool, tmp_path: Path
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        core.uses.lists_claims = False
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        pod = Pod(metadata=ObjectMeta(namespace="default", name=CONSUMER.name, uid=uid), status=PodStatus(phase=phase))
        core.cluster.pods[pod.ref] = pod
        core.cluster.remove(held)
        for number in range(ANSWERS_ALONE + 1):
            await look(core, number * GRACE_S)
        assert (set(core.backend.made) == {SLICE}) == is_kept
        told = [message for _, _, _, message in core.cluster.reported]
        assert len(told) == is_kept
        assert all("pod default/pod, which it was reserved for, has not ended" in message for message in told)


async def test_the_answer_to_the_write_of_a_status_counts_as_seen(tmp_path: Path) -> None:
    """The claim is shown without its allocation at the version that this write gave it."""
    cluster = Contradicting()
    async with plugin_core(tmp_path, cluster) as core:
        held = cluster.add(at(100, SLICE))
        await core.preparer.prepare_claim(held)
        await write_status(core, lambda: bool(cluster.written))
        assert cluster.claims["default", "training"].metadata.resource_version == "101"
        cluster.lies, cluster.storage, cluster.cache = True, at(101), at(101)
        for number in range(4):
            assert await look(core, number * GRACE_S) == ["training"]
        [(_, _, reason, message)] = cluster.reported
        assert (reason, "at the same version 101 it was in use" in message) == ("ClaimOrphaned", True)


async def test_a_pod_that_was_deleted_by_force_and_whose_process_goes_on_keeps_its_devices(tmp_path: Path) -> None:
    """Neither the API server nor the kubelet knew the pod any more, and its container could not be killed: on cards
    that do not show their users another pod got the device after 53 s.
    """
    async with plugin_core(tmp_path, FakeCluster()) as core:
        forced = core.cluster.add(claim("forced", SLICE))
        other = core.cluster.add(claim("other", "gpu-1"))
        for each in (forced, other):
            await core.preparer.prepare_claim(each)
        assert await look(core, 0) == ["forced", "other"], "what each claim is reserved for is seen"
        core.cluster.remove(forced)
        process = tmp_path / "proc/4711"
        process.mkdir()
        (process / "cgroup").write_text(f"0::/kubepods/pod{CONSUMER.uid}/container\n")
        (process / "stat").write_text("4711 (trainer) D 1")
        for at_s in range(1, 10):
            assert await look(core, at_s * GRACE_S) == ["forced", "other"]
        [(_, _, reason, message)] = core.cluster.reported
        assert reason == "ClaimOrphaned"
        assert "process 4711 of pod default/pod, which it was reserved for, has not ended" in message
        for file in process.iterdir():
            file.unlink()
        process.rmdir()
        assert await look(core, 10 * GRACE_S) == ["other"]
        assert (SLICE in core.backend.made, "gpu-1" in core.backend.made) == (False, True)
