"""Allocations that contradict themselves, as the API server may show them: rows of ``kinds.toml``."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import CapacityInUseError
from tests.attack.kinds import cases
from tests.fakes.claims import DRIVER, NAMESPACE, NODE, claim, ref, result, share_id
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core

NEIGHBOR = claim("neighbor", "gpu-1-2g-2gb-at-0")
SHARED = "gpu-0-1g-1gb-at-0-shared"
"""A device of 1 GiB that claims share."""
REF = ClaimRef(NAMESPACE, "wrong", "uid-of-wrong")
_SHARES = {name: share_id(name) for name in ("one", "other")}


class Allocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The allocation of a claim.

    ``shareID`` may be ``one`` or ``other``. Of what results do not say, the request is ``a``, the driver ours, and the
    pool that of the device's kind.
    """

    results: tuple[dict[str, Any], ...]
    says: tuple[str, ...]
    """What the error says, each with the path of a field."""
    requests: tuple[dict[str, Any], ...] = ({"name": "a", "exactly": {"deviceClassName": "gpu"}},)
    config: tuple[dict[str, Any], ...] = ()


def build_result(said: dict[str, Any]) -> dict[str, Any]:
    kind = said["device"].partition("-")[0]
    result = {"request": "a", "driver": DRIVER, "pool": f"{NODE}/{kind}", **said}
    if "shareID" in said:
        result["shareID"] = _SHARES.get(said["shareID"], said["shareID"])
    return result


class SpokenCluster(FakeCluster):
    """A cluster whose claim ``wrong`` is read as the plugin reads it, from the answer of an API server."""

    def __init__(self, allocation: Allocation) -> None:
        super().__init__()
        parameters = {"driver": DRIVER, "parameters": {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}}
        devices = {
            "results": [build_result(said) for said in allocation.results],
            "config": [{"source": "FromClaim", "opaque": parameters, **said} for said in allocation.config],
        }
        wire = {
            "metadata": {"namespace": REF.namespace, "name": REF.name, "uid": REF.uid},
            "spec": {"devices": {"requests": allocation.requests}},
            "status": {"allocation": {"devices": devices}},
        }
        self._answer = json.dumps(wire).encode()

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        if claim == REF:
            return KINDS.resource_claims.decode(self._answer)
        return await super().read_claim(claim, not_older_than=not_older_than)


@pytest.mark.parametrize(
    "allocation",
    cases(
        "test_contradictory_allocations.py::test_it_is_refused_by_its_fields_before_anything_is_done_on_hardware",
        Allocation,
    ),
)
async def test_it_is_refused_by_its_fields_before_anything_is_done_on_hardware(
    allocation: Allocation, tmp_path: Path
) -> None:
    cluster = SpokenCluster(allocation)
    cluster.add(NEIGHBOR)
    async with plugin_core(tmp_path, cluster) as core:
        await core.preparer.prepare_claim(ref(NEIGHBOR))
        before = (list(core.backend.calls), dict(core.checkpoint.records), core.store.names())
        for _ in range(2):  # the kubelet calls again
            with pytest.raises(KerfError) as raised:
                await core.preparer.prepare_claim(REF)
            assert str(raised.value).isprintable()
            assert [part for part in allocation.says if part not in str(raised.value)] == [], str(raised.value)
        assert (list(core.backend.calls), dict(core.checkpoint.records), core.store.names()) == before
        await core.preparer.unprepare_claim(REF)
        await core.preparer.unprepare_claim(ref(NEIGHBOR))
        assert list(core.backend.made) == []


class Overcommitment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What claims have of one device in shares, one after the other, and what the last of them asks for."""

    held: tuple[dict[str, str], ...]
    wanted: tuple[dict[str, str], ...]
    says: tuple[str, ...]
    is_admin: bool = False


@pytest.mark.parametrize(
    "shares",
    cases(
        "test_contradictory_allocations.py::test_shares_of_several_claims_beyond_the_device_are_refused_for_the_later_one",
        Overcommitment,
    ),
)
async def test_shares_of_several_claims_beyond_the_device_are_refused_for_the_later_one(
    shares: Overcommitment, tmp_path: Path
) -> None:
    """Each was checked against the whole device only, and together they had more of it than there is."""
    cluster = FakeCluster()
    earlier = [
        cluster.add(claim(f"held-{n}", result(SHARED, share=f"held-{n}", consumed=amounts)))
        for n, amounts in enumerate(shares.held)
    ]
    last = cluster.add(
        claim(
            "last",
            *(
                result(SHARED, share=f"last-{n}", consumed=amounts, admin=shares.is_admin or None)
                for n, amounts in enumerate(shares.wanted)
            ),
        )
    )
    async with plugin_core(tmp_path, cluster) as core:
        for one in earlier:
            await core.preparer.prepare_claim(one)
        before = (list(core.backend.calls), dict(core.checkpoint.records), core.store.names())
        if not shares.says:
            await core.preparer.prepare_claim(last)
            return
        for _ in range(2):
            with pytest.raises(CapacityInUseError) as raised:
                await core.preparer.prepare_claim(last)
            assert [part for part in shares.says if part not in str(raised.value)] == [], str(raised.value)
        assert (list(core.backend.calls), dict(core.checkpoint.records), core.store.names()) == before
        for one in earlier:
            await core.preparer.prepare_claim(one)  # they keep what they have
            await core.preparer.unprepare_claim(one)
        await core.preparer.prepare_claim(last)
        await core.preparer.unprepare_claim(last)
        assert list(core.backend.made) == []


async def test_of_two_claims_that_come_at_once_only_one_gets_what_there_is_once(tmp_path: Path) -> None:
    cluster = FakeCluster()
    claims = [cluster.add(claim(name, result(SHARED, share=name, consumed={"memory": "600Mi"}))) for name in "ab"]
    outcomes: list[str] = []
    async with plugin_core(tmp_path, cluster) as core:

        async def prepare(one: ClaimRef) -> None:
            try:
                await core.preparer.prepare_claim(one)
            except CapacityInUseError:
                outcomes.append("refused")
            else:
                outcomes.append("prepared")

        async with anyio.create_task_group() as group:
            for one in claims:
                group.start_soon(prepare, one)
    assert sorted(outcomes) == ["prepared", "refused"]
