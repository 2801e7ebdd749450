"""Who uses a claim, by the kubelet's words: it names claims without their UIDs."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node, NodeStatus, NodeSystemInfo, Pod
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from kerf_dra.driver.kubeletplugin.backends.kernel_files import UnreadableFilesError
from kerf_dra.driver.kubeletplugin.claims.claim_users import ClaimUsers
from kerf_dra.driver.kubeletplugin.cluster.base import lists_claims
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NAMESPACE
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.records import BOOT, LATER, device, record

POD = ObjectRef(NAMESPACE, "trainer")
CONSUMER = ResourceClaimConsumerReference(resource="pods", name="trainer", uid="0a1b2c3d-0001-4abc-8def-000000000001")


def start_thread(work: Work) -> None:
    threading.Thread(target=lambda: work()(), daemon=True).start()


def add_process(proc: Path, pid: int, group: str, *, state: str = "D", name: str = "python3") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::{group}\n")
    (folder / "stat").write_text(f"{pid} (a) b) {state} 1 1")
    (folder / "comm").write_text(f"{name}\n")


SYSTEMD = "/kubepods.slice/kubepods-pod0a1b2c3d_0001_4abc_8def_000000000001.slice/cri-containerd-1.scope"
CGROUPFS = "/../../kubepods/besteffort/pod0a1b2c3d-0001-4abc-8def-000000000001/1"
ANOTHER = "/kubepods.slice/kubepods-pod0a1b2c3d_0001_4abc_8def_000000000002.slice/cri-containerd-1.scope"


@pytest.mark.parametrize(
    ("group", "state", "is_used"),
    [
        (SYSTEMD, "D", True),
        (CGROUPFS, "S", True),
        (SYSTEMD, "Z", False),
        (ANOTHER, "D", False),
        ("/", "D", False),
    ],
    ids=["in the kernel", "another form of the group", "a zombie", "another pod", "no pod"],
)
async def test_a_process_of_a_pod_uses_the_claim_though_nobody_lists_the_pod(
    group: str, state: str, is_used: bool, tmp_path: Path
) -> None:
    """A pod was deleted by force whose container nothing could kill: another pod got its device after a minute."""

    async def list_uses() -> Sequence[ClaimUse]:
        return ()

    first, cluster = record(), FakeCluster()
    cluster.kubelet_lists_claims = True
    users = ClaimUsers(
        records={first.claim.uid: first},
        surveys=SurveyTracker(driver=DRIVER),
        list_uses=list_uses,
        cluster=cluster,
        start=start_thread,
        proc=tmp_path,
    )
    add_process(tmp_path, 4711, group, state=state)
    add_process(tmp_path, 4712, ANOTHER)
    (tmp_path / "4713").mkdir()
    user = f"process 4711 (python3) of pod {POD}, which it was reserved for, has not ended"
    assert await users.find_user(first, (CONSUMER,)) == (user if is_used else None)
    assert await users.find_user(first) is None, "it is not known whose the claim was"


async def test_processes_that_cannot_be_listed_prove_nothing(tmp_path: Path) -> None:
    async def list_uses() -> Sequence[ClaimUse]:
        return ()

    users = ClaimUsers(
        records={},
        surveys=SurveyTracker(driver=DRIVER),
        list_uses=list_uses,
        cluster=FakeCluster(),
        start=start_thread,
        proc=tmp_path / "not mounted",
    )
    with pytest.raises(UnreadableFilesError):
        await users.find_user(record(), (CONSUMER,))


def made_anew(first: PreparedClaim, **changes: ClaimState) -> PreparedClaim:
    """A later claim with the name of ``first``."""
    return replace(first, claim=first.claim._replace(uid="uid-of-the-next"), **changes)


@pytest.mark.parametrize(
    ("later", "is_used"),
    [
        ([], True),
        ([record("other")], True),
        ([made_anew(record())], False),
        ([made_anew(record(), state=ClaimState.STARTED)], True),
    ],
    ids=["alone", "another name", "the same name", "the same name, not prepared yet"],
)
async def test_a_pod_uses_the_latest_prepared_claim_of_the_name(later: Sequence[PreparedClaim], is_used: bool) -> None:
    first = record()

    async def list_uses() -> Sequence[ClaimUse]:
        return [ClaimUse(claim=ObjectRef(NAMESPACE, "training"), pod=POD)]

    users = ClaimUsers(
        records={each.claim.uid: each for each in (first, *later)},
        surveys=SurveyTracker(driver=DRIVER),
        list_uses=list_uses,
        cluster=FakeCluster(),
        start=start_thread,
    )
    assert await users.find_user(first) == (f"the kubelet runs pod {POD} with it" if is_used else None)


async def test_every_claim_that_the_kubelet_lists_is_in_use() -> None:
    names = ("first", "second")

    async def list_uses() -> Sequence[ClaimUse]:
        return [ClaimUse(claim=ObjectRef(NAMESPACE, name), pod=POD) for name in names]

    records = {each.claim.uid: each for each in map(record, (*names, "third"))}
    users = ClaimUsers(
        records=records,
        surveys=SurveyTracker(driver=DRIVER),
        list_uses=list_uses,
        cluster=FakeCluster(),
        start=start_thread,
    )
    assert await users.list_used() == {"uid-of-first", "uid-of-second"}


async def test_a_process_on_a_device_that_claims_share_is_that_of_none_in_particular() -> None:
    async def list_uses() -> Sequence[ClaimUse]:
        return []

    one, other = (record(name, device(share=name)) for name in ("one", "other"))
    surveys = SurveyTracker(driver=DRIVER)
    found = FoundPartition(id="gi-1", profile=None, placement=Placement(0, 1), in_use=True)
    surveys.update(gpu(0), CardSurvey(card_uuid="GPU-0", partitions=(found,)), (one, other), BOOT, LATER)
    for records, user in (([one, other], None), ([one], "a process uses gpu-0-1g-1gb-at-0")):
        by_uid = {each.claim.uid: each for each in records}
        users = ClaimUsers(
            records=by_uid, surveys=surveys, list_uses=list_uses, cluster=FakeCluster(), start=start_thread
        )
        assert await users.find_user(one) == user


@pytest.mark.parametrize("used", ["GPU-0", "GPU-1"])
async def test_a_process_on_any_device_of_a_claim_uses_it(used: str) -> None:
    async def list_uses() -> Sequence[ClaimUse]:
        return []

    held = record("both", device(), device("gpu-1-1g-1gb-at-0", card="GPU-1"))
    other = record("other", device("gpu-0-1g-1gb-at-2", start=2))
    records, surveys = {each.claim.uid: each for each in (other, held)}, SurveyTracker(driver=DRIVER)
    for index in range(2):
        is_used = used == f"GPU-{index}"
        found = FoundPartition(id="gi-1", profile=None, placement=Placement(0, 1), in_use=is_used)
        survey = CardSurvey(card_uuid=f"GPU-{index}", partitions=(found,))
        surveys.update(gpu(index), survey, records.values(), BOOT, LATER)
    users = ClaimUsers(records=records, surveys=surveys, list_uses=list_uses, cluster=FakeCluster(), start=start_thread)
    assert await users.find_user(held) == f"a process uses gpu-{used[-1]}-1g-1gb-at-0"
    assert await users.find_user(other) is None


@pytest.mark.parametrize("runs", [0, 1, 2])
async def test_any_pod_that_a_claim_was_reserved_for_and_that_runs_uses_it(runs: int) -> None:
    """Where the kubelet lists no claims."""

    async def list_uses() -> Sequence[ClaimUse]:
        return []

    held, cluster = record(), FakeCluster()
    cluster.kubelet_lists_claims = False
    pods = [ResourceClaimConsumerReference(resource="pods", name=f"pod-{n}", uid=f"uid-{n}") for n in range(3)]
    ref = ObjectRef(NAMESPACE, f"pod-{runs}")
    cluster.pods[ref] = Pod(metadata=ObjectMeta(namespace=NAMESPACE, name=ref.name, uid=f"uid-{runs}"))
    users = ClaimUsers(
        records={held.claim.uid: held},
        surveys=SurveyTracker(driver=DRIVER),
        list_uses=list_uses,
        cluster=cluster,
        start=start_thread,
    )
    assert await users.find_user(held, pods) == f"pod {ref}, which it was reserved for, has not ended"
    assert await users.find_user(held, pods[:runs]) is None


@pytest.mark.parametrize(
    ("kubelet", "lists"),
    [
        ("v1.34.0", True),
        ("v1.37.1-eks-1234", True),
        ("v1.33.9", False),
        ("v1.4.0", False),
        ("", False),
        ("main", False),
    ],
)
def test_kubelets_list_claims_from_1_34_on(kubelet: str, lists: bool) -> None:
    info = NodeSystemInfo(kubelet_version=kubelet)
    assert lists_claims(Node(status=NodeStatus(node_info=info))) is lists


@pytest.mark.parametrize(
    ("answers", "version_lists", "expected"),
    [
        ([None], True, False),
        ([()], False, False),
        ([()], True, True),
        ([(ClaimUse(claim=ObjectRef(NAMESPACE, "other"), pod=POD),), ()], False, True),
    ],
    ids=["no access to its folder", "an older one", "a newer one without pods", "one that has listed a claim"],
)
async def test_a_kubelet_that_cannot_be_asked_or_lists_no_claims_proves_nothing(
    answers: list[Sequence[ClaimUse] | None], version_lists: bool, expected: bool
) -> None:
    left = iter(answers)

    async def list_uses() -> Sequence[ClaimUse] | None:
        return next(left)

    cluster = FakeCluster()
    cluster.kubelet_lists_claims = version_lists
    users = ClaimUsers(
        records={}, surveys=SurveyTracker(driver=DRIVER), list_uses=list_uses, cluster=cluster, start=start_thread
    )
    for _ in answers[1:]:
        await users.list_used()
    assert await users.lists_claims() is expected
