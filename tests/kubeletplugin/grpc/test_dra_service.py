"""What the kubelet sees of the plugin: prepare and unprepare over real sockets (KEP-3063, KEP-4381)."""

import json
import logging
from io import StringIO
from typing import Any

import anyio
import grpc.aio
import pytest
from msgspec.structs import replace

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError
from kerf_dra.driver.runtime import logs, metrics
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, claim, config, ref, result, share_id
from tests.fakes.kubelet import V1_32, V1_37, ClaimError
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until

SLICE = "gpu-0-1g-1gb-at-0"
NEXT_SLICE = "gpu-0-1g-1gb-at-1"
SHARE = share_id("one")


def env(machine: Machine, claim_uid: str) -> dict[str, list[str]]:
    spec = json.loads(machine.cdi_spec(claim_uid))
    return {device["name"]: device["containerEdits"]["env"] for device in spec["devices"]}


def records_agree(machine: Machine, *claims: Any) -> None:
    """Hardware and CDI files are those of ``claims`` and no others'."""
    uids = sorted(claim.uid for claim in claims)
    assert machine.cdi_files == [f"k8s.gpu.kerf.dev-claim_{uid}" for uid in uids]
    names = {name.removeprefix(f"claim-{uid}-") for uid in uids for name in env(machine, uid)}
    places = {name.removesuffix(f"-shared-{SHARE}") for name in names}
    assert set(machine.backend.made) == places


async def test_the_kubelet_is_offered_all_versions_and_the_absolute_path_of_the_dra_socket() -> None:
    with machine() as node:
        async with node.plugin():
            info = node.kubelet.info
            assert info is not None
            assert (info.type, info.name) == ("DRAPlugin", DRIVER)
            assert info.endpoint == str(node.root / "kubelet/plugins/gpu.kerf.dev/dra.sock")
            assert tuple(info.supported_versions) == V1_37


@pytest.mark.parametrize(("known", "sees_share"), [(V1_37, True), (V1_32, False)])
async def test_prepare_answers_with_devices_and_their_cdi_ids_in_every_version(
    known: tuple[str, ...], sees_share: bool
) -> None:
    with machine() as node:
        node.kubelet.known = known
        shared = result("gpu-1-shared", request="second/large", share="one")
        held = node.cluster.add(claim("training", SLICE, shared))
        async with node.plugin():
            first, second = await node.kubelet.prepare(held)
        assert (first.pool_name, first.device_name, list(first.request_names)) == ("node-1/gpu", SLICE, ["accelerator"])
        assert list(first.cdi_device_ids) == [f"k8s.gpu.kerf.dev/claim=claim-{held.uid}-{SLICE}"]
        assert list(second.request_names) == ["second"]
        assert list(second.cdi_device_ids) == [f"k8s.gpu.kerf.dev/claim=claim-{held.uid}-gpu-1-shared-{SHARE}"]
        if sees_share:
            assert (first.HasField("share_id"), second.share_id) == (False, SHARE)
        assert list(env(node, held.uid)) == [f"claim-{held.uid}-{SLICE}", f"claim-{held.uid}-gpu-1-shared-{SHARE}"]
        records_agree(node, held)


async def test_prepare_and_unprepare_may_be_repeated_at_any_time() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            answers = [await node.kubelet.prepare(held) for _ in range(3)]
            assert answers[0] == answers[1] == answers[2]
            assert node.backend.calls == [("prepare", SLICE)]
            for _ in range(3):
                await node.kubelet.unprepare(held)
                records_agree(node)
            assert node.backend.calls == [("prepare", SLICE), ("unprepare", SLICE)]
            await node.kubelet.prepare(held)
            records_agree(node, held)


async def test_a_cdi_file_that_somebody_removed_is_back_after_the_next_prepare() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
            before = node.cdi_spec(held.uid)
            node.store.remove(node.cdi_files[0])
            await node.kubelet.prepare(held)
            assert node.cdi_spec(held.uid) == before


async def test_unprepare_of_an_unknown_claim_succeeds_without_asking_anybody() -> None:
    with machine() as node:
        node.cluster.is_down = True
        async with node.plugin():
            await node.kubelet.unprepare(ref(claim("never-seen")))
        assert node.backend.calls == []


async def test_unprepare_does_not_need_the_api_server_nor_the_claim() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
            node.cluster.remove(held)
            node.cluster.is_down = True
            await node.kubelet.unprepare(held)
        records_agree(node)


async def test_one_call_with_many_claims_answers_each_for_itself() -> None:
    with machine() as node:
        good = node.cluster.add(claim("good", SLICE))
        unallocated = node.cluster.add(claim("unallocated"))
        missing = ref(claim("missing"))
        async with node.plugin():
            answers = await node.kubelet.prepare_all([unallocated, good, missing])
        assert [device.device_name for device in answers[good.uid].devices] == [SLICE]
        assert answers[good.uid].error == ""
        assert answers[unallocated.uid].error == "claim default/unallocated is not allocated"
        assert answers[missing.uid].error == "claim default/missing (UID uid-of-missing) does not exist"


async def test_a_claim_of_the_same_name_with_another_uid_is_another_claim() -> None:
    with machine() as node:
        old = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(old)
            new = node.cluster.add(claim("training", NEXT_SLICE, uid="new-uid"))
            with pytest.raises(
                ClaimError, match="claim default/training was deleted and created again: its UID is new-uid"
            ):
                await node.kubelet.prepare(old)
            await node.kubelet.prepare(new)
            records_agree(node, old, new)
            await node.kubelet.unprepare(old)
            records_agree(node, new)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (claim("c", result("nic-0", driver="nic.example.com")), "has devices of nic.example.com, none of gpu.kerf.dev"),
        (claim("c", "gpu-9"), "device gpu.kerf.dev/node-1/gpu/gpu-9 is allocated, but this node does not have it"),
        (
            claim("c", SLICE, configs=[config({"kind": "GpuConfig", "apiVersion": "kerf.dev/v1alpha1", "speed": 11})]),
            "claim default/c: status.allocation.devices.config[0].opaque.parameters.speed",
        ),
    ],
    ids=["foreign driver", "unknown device", "unknown field in the configuration"],
)
async def test_a_claim_that_cannot_be_prepared_leaves_nothing_and_says_why(held: Any, message: str) -> None:
    with machine() as node:
        uid = node.cluster.add(held)
        async with node.plugin():
            with pytest.raises(ClaimError) as raised:
                await node.kubelet.prepare(uid)
        assert message in str(raised.value)
        records_agree(node)
        assert node.backend.calls == []


async def test_a_cdi_directory_that_cannot_be_written_fails_the_claim_and_its_retry_succeeds() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            node.settings.cdi_dir.write_text("a file")
            with pytest.raises(ClaimError, match=r"the claim's CDI file: .* a file stands where a directory is needed"):
                await node.kubelet.prepare(held)
            node.settings.cdi_dir.unlink()
            await node.kubelet.prepare(held)
            records_agree(node, held)
            assert len(node.backend.made) == 1


async def test_a_fault_of_the_plugin_fails_its_claim_alone() -> None:
    with machine() as node:
        good, bad = (node.cluster.add(claim(name, device)) for name, device in (("good", SLICE), ("bad", "gpu-1")))
        node.cluster.errors["bad"] = ZeroDivisionError("division by zero")
        async with node.plugin():
            answers = await node.kubelet.prepare_all([bad, good])
        assert answers[good.uid].error == ""
        assert answers[bad.uid].error == (
            "internal error of the kubelet plugin, see its log: ZeroDivisionError('division by zero')"
        )


async def test_every_log_line_of_a_call_carries_its_claim_and_one_operation_id() -> None:
    lines = StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("kerf_dra.driver.kubeletplugin")
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            try:
                await node.kubelet.prepare(held)
                await node.kubelet.unprepare(held)
            finally:
                logger.removeHandler(handler)
                logger.setLevel(logging.NOTSET)
    prepared, unprepared = (json.loads(line) for line in lines.getvalue().splitlines())
    assert prepared["message"] == f"prepared {SLICE} (record: absent)"
    assert unprepared["message"] == "unprepared (record: prepared)"
    for line in (prepared, unprepared):
        assert (line["claim"], line["claim_uid"]) == ("default/training", held.uid)
    assert prepared["request_id"] != unprepared["request_id"]


async def test_the_configuration_reaches_the_backend() -> None:
    parameters = {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "Mps", "mps": {"activeThreadPercentage": 50}},
    }
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE, configs=[config(parameters)]))
        async with node.plugin():
            await node.kubelet.prepare(held)
        given: Any = node.backend.configs[SLICE]
        assert given.sharing.mps.active_thread_percentage == 50


async def test_a_device_that_needs_no_edits_has_no_cdi_id() -> None:
    with machine() as node:
        node.backend.without_edits = {SLICE, NEXT_SLICE}
        held = node.cluster.add(claim("training", SLICE, NEXT_SLICE))
        async with node.plugin():
            assert [list(device.cdi_device_ids) for device in await node.kubelet.prepare(held)] == [[], []]
        assert node.cdi_files == []


async def test_two_claims_for_one_device_conflict_until_the_first_is_unprepared() -> None:
    with machine() as node:
        first = node.cluster.add(claim("first", SLICE))
        second = node.cluster.add(claim("second", "gpu-0-2g-2gb-at-0"))
        async with node.plugin():
            await node.kubelet.prepare(first)
            with pytest.raises(
                ClaimError, match=r"two claims for one exclusive device: .* held by claim default/first"
            ):
                await node.kubelet.prepare(second)
            records_agree(node, first)
            await node.kubelet.unprepare(first)
            await node.kubelet.prepare(second)
            records_agree(node, second)


async def test_a_tenant_is_not_told_whose_claim_in_another_namespace_is_in_the_way_but_the_log_says_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer becomes an event of the pod, which everybody in its namespace reads."""
    made = claim("hostile-takeover", SLICE)
    theirs = replace(made, metadata=replace(made.metadata, namespace="finance"))
    with machine() as node:
        first = node.cluster.add(theirs)
        second = node.cluster.add(claim("second", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(first)
            with pytest.raises(ClaimError, match="held by a claim of another namespace") as told:
                await node.kubelet.prepare(second)
        assert not [each for each in ("hostile-takeover", "finance", first.uid) if each in str(told.value)]
        assert f"claim finance/hostile-takeover (UID {first.uid})" in caplog.text


async def test_a_claim_that_is_gone_and_in_the_way_is_taken_back_so_that_a_retry_succeeds() -> None:
    with machine(gone_grace_s=0.01, usage_interval_s=0.05) as node:
        first = node.cluster.add(claim("first", SLICE))
        second = node.cluster.add(claim("second", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(first)
            node.cluster.remove(first)
            with pytest.raises(ClaimError, match="two claims for one exclusive device"):
                await node.kubelet.prepare(second)
            # The record goes after the hardware: until then a retry is refused as the first try was.
            await until(lambda: metrics.REGISTRY.get_sample_value("kerf_claim_records", {"driver": DRIVER}) == 0)
            assert not node.backend.made
            await node.kubelet.prepare(second)
            records_agree(node, second)


async def test_of_two_claims_for_one_device_at_once_one_gets_it() -> None:
    with machine() as node:
        rivals = [node.cluster.add(claim(name, SLICE)) for name in ("first", "second")]
        async with node.plugin():
            answers = await node.kubelet.prepare_all(rivals)
            (winner,) = [rival for rival in rivals if not answers[rival.uid].error]
            records_agree(node, winner)


async def test_admin_access_looks_at_a_device_in_use_and_does_not_take_it() -> None:
    with machine() as node:
        user = node.cluster.add(claim("user", SLICE))
        monitor = node.cluster.add(claim("monitor", result("gpu-0", admin=True)))
        late_user = node.cluster.add(claim("late-user", NEXT_SLICE))
        async with node.plugin():
            for held in (user, monitor, late_user):
                await node.kubelet.prepare(held)
            await node.kubelet.unprepare(monitor)
            records_agree(node, user, late_user)


async def test_a_failure_of_one_device_takes_back_the_others() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE, NEXT_SLICE, "gpu-1"))
        node.backend.fail("prepare", NEXT_SLICE, HardwareBusyError("in use by another client"))
        async with node.plugin():
            with pytest.raises(ClaimError, match=f"^{NEXT_SLICE}: in use by another client$"):
                await node.kubelet.prepare(held)
            records_agree(node)
            await node.kubelet.prepare(held)
            records_agree(node, held)


async def test_what_could_not_be_taken_back_is_not_forgotten() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE, "gpu-1"))
        rival = node.cluster.add(claim("rival", SLICE))
        node.backend.fail("prepare", "gpu-1", PermanentError("fell off the bus"))
        node.backend.fail("unprepare", SLICE, HardwareBusyError("in use by another client"))
        async with node.plugin():
            with pytest.raises(ClaimError, match=r"^gpu-1: fell off the bus$"):
                await node.kubelet.prepare(held)
            assert set(node.backend.made) == {SLICE}
            with pytest.raises(ClaimError, match="taken by"):
                await node.kubelet.prepare(rival)
            await node.kubelet.unprepare(held)
            records_agree(node)
            await node.kubelet.prepare(rival)


async def test_a_failed_unprepare_is_an_error_and_prepare_makes_the_device_anew_afterwards() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE, "gpu-1"))
        node.backend.fail("unprepare", "gpu-1", HardwareBusyError("in use by another client"))
        async with node.plugin():
            await node.kubelet.prepare(held)
            with pytest.raises(ClaimError, match=r"^gpu-1: in use by another client$"):
                await node.kubelet.unprepare(held)
            assert node.cdi_files == []
            assert set(node.backend.made) == {"gpu-1"}
            await node.kubelet.prepare(held)
            records_agree(node, held)
            assert len(node.backend.made) == 2
            await node.kubelet.unprepare(held)
            records_agree(node)


async def test_a_claim_that_was_allocated_anew_keeps_its_old_devices_until_the_kubelet_unprepares_it() -> None:
    """A container may run with them still: the kubelet, once it was restarted, calls for claims of pods that run."""
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
            node.cluster.add(claim("training", "gpu-0-2g-2gb-at-0"))
            with pytest.raises(ClaimError, match="held by claim default/training, which has not been unprepared yet"):
                await node.kubelet.prepare(held)
            assert set(node.backend.made) == {SLICE}
            await node.kubelet.unprepare(held)
            (device,) = await node.kubelet.prepare(held)
        assert device.device_name == "gpu-0-2g-2gb-at-0"
        assert node.backend.calls == [("prepare", SLICE), ("unprepare", SLICE), ("prepare", "gpu-0-2g-2gb-at-0")]
        records_agree(node, held)


async def test_while_the_api_server_is_down_prepare_fails_and_the_retry_succeeds() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        node.cluster.is_down = True
        async with node.plugin():
            with pytest.raises(ClaimError, match="connection refused"):
                await node.kubelet.prepare(held)
            records_agree(node)
            node.cluster.is_down = False
            await node.kubelet.prepare(held)
            records_agree(node, held)


async def test_a_prepare_that_outlasts_the_kubelets_deadline_is_joined_by_its_retry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        gate = node.backend.gate("prepare", SLICE)
        async with node.plugin():
            deadline_s = 0.05
            while not gate.reached.is_set():  # on a busy machine the plugin may not have seen the call by then
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await node.kubelet.prepare(held, timeout_s=deadline_s)
                assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                deadline_s *= 2
            await until(lambda: "the kubelet no longer waits; the work goes on" in caplog.text)
            async with anyio.create_task_group() as group:
                group.start_soon(node.kubelet.prepare, held)
                await gate.reached.wait()
                gate.opened.set()
        assert node.backend.calls == [("prepare", SLICE)]
        records_agree(node, held)


async def test_an_unprepare_during_a_prepare_waits_for_it_and_takes_all_back() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        gate = node.backend.gate("prepare", SLICE)
        async with node.plugin():
            async with anyio.create_task_group() as group:
                group.start_soon(node.kubelet.prepare, held)
                await gate.reached.wait()
                group.start_soon(node.kubelet.unprepare, held)
                gate.opened.set()
            records_agree(node)
        assert node.backend.calls == [("prepare", SLICE), ("unprepare", SLICE)]


async def test_thirty_two_claims_at_once_work_cards_in_parallel_and_each_card_serially() -> None:
    with machine() as node:
        node.backend.cards = [gpu(index) for index in range(8)]
        names = [f"gpu-{index}-1g-1gb-at-{start}" for start in range(4) for index in range(8)]
        claims = [node.cluster.add(claim(f"c{number}", name)) for number, name in enumerate(names)]
        gates = [node.backend.gate("prepare", name) for name in names[:8]]
        async with node.plugin():
            async with anyio.create_task_group() as group:
                for held in claims:
                    group.start_soon(node.kubelet.prepare, held)
                for gate in gates:
                    await gate.reached.wait()
                assert node.backend.most_busy == 8
                for gate in gates:
                    gate.opened.set()
            records_agree(node, *claims)
            answers = await node.kubelet.unprepare_all(claims)
            assert not any(answer.error for answer in answers.values())
        records_agree(node)
