"""Several claims, other users and other drivers on one node with NVIDIA cards: each keeps to its own."""

import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pynvml
import pytest

from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, CardAbsentError
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from tests.fakes.claims import claim, ref, result
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import H100, NvidiaNode, QuickBackend
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

SMALL, LARGE = "gpu-0-1g-20gb-at-0", "gpu-0-3g-40gb-at-4"
ONE_G, TWO_G = (19, 1), (14, 2)
"""Profile ids of 1g.10gb and 2g.20gb, and their sizes in memory slices. The latter's first one has the id of SMALL."""


@pytest.fixture
def node(tmp_path: Path) -> NvidiaNode:
    return NvidiaNode(tmp_path, H100, H100)


async def test_what_somebody_has_cut_before_the_start_outlives_the_plugin_and_its_claims(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#149: a node with partitions made by hand starts, and keeps them.

    Theirs did not start with them; later versions destroy at each start what they do not know.
    """
    node.cut_by_hand(*ONE_G, start=6)
    held = node.cluster.add(claim("training", SMALL))
    for _ in range(2):
        async with node.plugin() as core:
            await core.preparer.prepare_claim(held)
            await core.garbage_collector.collect(set(core.checkpoint.records))
    assert sorted(node.instances()) == ["1g.10gb at 6", "1g.20gb at 0"]
    async with node.plugin() as core:
        await core.preparer.unprepare_claim(held)
        with pytest.raises(DevicesFailedError, match=r"in use outside of Kerf: 1g\.10gb at 6"):
            await core.preparer.prepare_claim(node.cluster.add(claim("whole", "gpu-0")))
    assert (node.instances(), node.is_mig_on()) == (["1g.10gb at 6"], True)


async def test_the_end_of_one_claim_leaves_the_mig_mode_to_those_that_are_left(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, read in its code: MIG mode as it was at the start counts for ever.

    So a Hopper that was started without it is taken for empty, and is to leave it, whenever a partition goes.
    """
    assert not node.is_mig_on()
    one, other = (node.cluster.add(claim(device, device)) for device in (SMALL, LARGE))
    async with node.plugin() as core:
        for held in (one, other):
            await core.preparer.prepare_claim(held)
        await core.preparer.unprepare_claim(one)
        assert (node.instances(), node.is_mig_on()) == (["3g.40gb at 4"], True)
        await core.preparer.unprepare_claim(other)
        await core.preparer.prepare_claim(node.cluster.add(claim("whole", "gpu-0")))
        assert not node.is_mig_on(), "the whole card can be used by CUDA"


async def test_another_instance_that_has_got_the_id_of_ours_is_not_destroyed(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, read in its code: a destroy trusts the id that was recorded."""
    held = node.cluster.add(claim("training", SMALL))
    async with node.plugin() as core:
        await core.preparer.prepare_claim(held)
        node.remove_by_hand(3)
        node.cut_by_hand(*TWO_G, start=0)
        await core.preparer.unprepare_claim(held)
        assert [*core.checkpoint.records] == []
        assert node.instances() == ["2g.20gb at 0"]


async def test_of_a_claim_over_several_drivers_only_our_devices_are_worked_on(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1327, #1328: names of other drivers' devices are not for us to read.

    Theirs parses every result of the claim when it takes back what it has begun; here a name even is one of ours.
    """
    foreign = [result("gpu-0-1g-10gb-at-2", driver=driver, request=driver) for driver in ("a.example", "z.example")]
    mixed = claim("mixed", foreign[0], result(SMALL, request="gpu"), foreign[1])
    node.cluster.add(mixed)
    node.cut_by_hand(*ONE_G, start=2)
    node.machine.add_fault("nvmlGpuInstanceCreateComputeInstance", error=pynvml.NVML_ERROR_UNKNOWN)
    async with node.plugin() as core:
        with pytest.raises(DevicesFailedError, match=f"^{SMALL}: "):
            await core.preparer.prepare_claim(ref(mixed))
        assert node.instances() == ["1g.10gb at 2"], "only what was ours is taken back"
        record = await core.preparer.prepare_claim(ref(mixed))
        assert [device.share.id.device for device in record.devices] == [SMALL]
        await core.preparer.unprepare_claim(ref(mixed))
        assert node.instances() == ["1g.10gb at 2"]


async def test_a_slow_card_keeps_no_other_card_waiting(node: NvidiaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#374, #378: one lock for all cards ran into its timeout under load."""
    ended: list[str] = []
    reached, may_go_on = threading.Event(), threading.Event()
    cut = QuickBackend.prepare

    def cut_slowly(backend: QuickBackend, device: AllocatedDevice, *arguments: Any) -> Any:
        if device.share.id.device == SMALL:
            reached.set()
            may_go_on.wait(LONGEST_S)
        return cut(backend, device, *arguments)

    monkeypatch.setattr(QuickBackend, "prepare", cut_slowly)
    async with node.plugin() as core, anyio.create_task_group() as kubelet:

        async def prepare(device: str) -> None:
            await core.preparer.prepare_claim(node.cluster.add(claim(device, device)))
            ended.append(device)

        kubelet.start_soon(prepare, SMALL)
        with anyio.fail_after(LONGEST_S), ExitStack() as at_the_end:
            at_the_end.callback(may_go_on.set)
            await until(reached.is_set)
            await prepare("gpu-1-3g-40gb-at-0")
    assert ended == ["gpu-1-3g-40gb-at-0", SMALL]


def test_many_threads_find_their_cards_while_the_driver_is_loaded_anew(tmp_path: Path, node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, read in its code: handles were kept in a map without a lock."""
    with node.backend() as backend:
        cards = [card.uuid for card in backend.discover()]
        problems: list[Exception] = []

        def survey(card: str) -> None:
            for _ in range(200):
                try:
                    assert backend.survey(card).partitions == ()
                except CardAbsentError:
                    continue  # said once for each load of the driver
                except Exception as error:
                    problems.append(error)

        threads = [threading.Thread(target=survey, args=(cards[number % 2],)) for number in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            node.machine.reload_driver()
        for thread in threads:
            thread.join()
        assert problems == []
        with suppress(CardAbsentError):  # once, where all threads had ended before the last load
            backend.survey(cards[0])
        assert [backend.survey(card).partitions for card in cards] == [(), ()]
