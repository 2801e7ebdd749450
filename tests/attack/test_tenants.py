"""Tenants against each other: what one of them does in its namespace costs another neither devices nor answers."""

import re
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kube.events import EventReporter
from tests.fakes.claims import claim, config
from tests.fakes.cluster import FakeCluster
from tests.kube.memory_server import MemoryServer
from tests.kubeletplugin.claim_fixture import plugin_core
from tests.kubeletplugin.claims.test_early_preparation import LOADED, early_preparation, waiting
from tests.kubeletplugin.harness import machine
from tests.kubeletplugin.wait import until

SLICE = "gpu-0-1g-1gb-at-0"
SHARED = f"{SLICE}-shared"
WRONG = config({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "nothing": "known"})


def of(namespace: str, made: ResourceClaim) -> ResourceClaim:
    return replace(made, metadata=replace(made.metadata, namespace=namespace))


async def test_claims_whose_names_read_the_same_have_nothing_in_common() -> None:
    wanted = [("team", "a-b"), ("team-a", "b"), ("team-a-b", "team"), ("team-a-b", "b")]
    with machine() as node:
        held = {
            f"gpu-0-1g-1gb-at-{number}": node.cluster.add(
                of(namespace, claim(name, f"gpu-0-1g-1gb-at-{number}", uid=f"uid-{number}"))
            )
            for number, (namespace, name) in enumerate(wanted)
        }
        async with node.plugin():
            for one in held.values():
                await node.kubelet.prepare(one)
            left = {device: (node.backend.made[device], node.cdi_spec(each.uid)) for device, each in held.items()}
            while held:
                device, ended = held.popitem()
                await node.kubelet.unprepare(ended)
                del left[device]
                assert {name: (node.backend.made[name], node.cdi_spec(each.uid)) for name, each in held.items()} == left
                assert len(node.backend.made) == len(node.cdi_files) == len(left)


async def test_claims_that_are_refused_again_and_again_keep_no_other_from_its_devices() -> None:
    """In one call with it, as no kubelet would make, and as often as one would in a quarter of an hour."""
    with machine() as node:
        refused = [
            node.cluster.add(of("tenant", claim(f"wrong-{number}", f"gpu-0-1g-1gb-at-{number}", configs=[WRONG])))
            for number in range(4)
        ]
        other = node.cluster.add(of("other", claim("right", SLICE)))
        async with node.plugin():
            for _ in range(100):
                answers = await node.kubelet.prepare_all([*refused, other])
                assert [uid for uid, answer in answers.items() if not answer.error] == [other.uid]
            slices = [each for pool in node.cluster.published[-1] for each in pool.slices]
        assert node.backend.calls == [("prepare", SLICE)]
        assert [device.name for each in slices for device in each.devices if device.taints] == []


async def test_no_answer_to_a_tenant_has_another_tenants_names(tmp_path: Path) -> None:
    """Whatever stands in the way of a claim: the same device, a part of it, a share of it."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        secret = core.cluster.add(of("finance", claim("takeover", SLICE, uid="uid-of-theirs")))
        await core.preparer.prepare_claim(secret)
        for number, device in enumerate((SLICE, "gpu-0", "gpu-0-2g-2gb-at-0", SHARED)):
            mine = core.cluster.add(of("tenant", claim(f"mine-{number}", device)))
            with pytest.raises(Exception, match=r".") as told:
                await core.preparer.prepare_claim(mine)
            assert not re.search("finance|takeover|uid-of-theirs", str(told.value)), device
        assert not [said for said in core.cluster.reported if re.search("finance|takeover|uid-of-theirs", str(said))]


async def test_claims_over_a_card_that_hangs_keep_none_over_another_card_waiting(tmp_path: Path) -> None:
    """Eight were prepared early at once, and one tenant's claims that share a device can be more than that."""
    async with early_preparation(tmp_path) as fixture:
        gate = fixture.core.backend.gate("prepare", SHARED)
        for number in range(20):
            share = f"8f6c1f52-0000-4000-8000-{number:012}"
            fixture.allocate(of("tenant", waiting(f"slow-{number}", SHARED, share=share)))
        await gate.reached.wait()
        fixture.allocate(of("other", waiting("quick", "fpga-0-aes-at-0")))
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.to_reported_devices() == [("quick", LOADED, "the devices of the claim are ready")]
        gate.opened.set()


def names(server: MemoryServer) -> set[str]:
    """What the events of the server are about."""
    return {value["involvedObject"]["name"] for value in server.objects.values()}


async def test_a_flood_of_events_about_one_tenants_claims_drops_none_about_anothers() -> None:
    server = MemoryServer()
    reporter = EventReporter(server.client(), component="kerf-kubelet-plugin", instance="n1")

    def report(namespace: str, name: str) -> None:
        about = ObjectReference(kind="ResourceClaim", namespace=namespace, name=name, uid=name)
        reporter.report(about, type="Warning", reason="DeviceRefused", message="no")

    report("other", "first")
    for number in range(1000):
        report("tenant", f"claim-{number}")
        if number == 500:
            report("other", "between")
    async with anyio.create_task_group() as group:
        group.start_soon(reporter.run)
        report("other", "last")
        await until(lambda: names(server) >= {"first", "between", "last", "claim-999"})
        group.cancel_scope.cancel()
    assert len(server.objects) == 256, "what waits is bounded all the same"
