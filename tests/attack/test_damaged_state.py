"""A node whose state is damaged while no plugin runs: by a disk, by a restored backup, by a hand that deletes too much.

The plugin was killed with claims in use. Whatever byte of its files is then wrong, the next one refuses to start and
says what to do, or it knows every claim; partitions, CDI files and with them the devices of running pods stay.
"""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors
from tests.fakes.claims import claim
from tests.kubeletplugin.harness import Machine, machine

CLAIMS = {"a": "gpu-0-1g-1gb-at-0", "b": "gpu-0-1g-1gb-at-1", "c": "gpu-1"}
FILES = ("checkpoint.db", "checkpoint.db-wal", "checkpoint.digest")
SAMPLES = 12
MORE_SAMPLES = 200


@dataclass(frozen=True, slots=True)
class Damage:
    """A bit that is flipped in a file, or the size to which it is cut; ``where`` is a part of its size from 0 to 1."""

    file: str
    where: float
    bit: int | None

    def apply(self, directory: Path) -> None:
        path = directory / self.file
        data = bytearray(path.read_bytes())
        at = int(len(data) * self.where)
        if self.bit is None:
            del data[at:]
        else:
            data[at] ^= 1 << self.bit
        path.write_bytes(data)


def damages(count: int) -> Iterator[Damage]:
    chosen = random.Random(1)
    for number in range(count):
        yield Damage(FILES[number % 3], chosen.random(), chosen.randrange(8) if number % 4 else None)


async def use_and_kill(node: Machine) -> Path:
    """Prepare three claims and unprepare a fourth; returns a copy of what a kill leaves in the state folder."""
    copy = node.root / "killed"
    async with node.plugin():
        for name, device in CLAIMS.items():
            await node.kubelet.prepare(node.cluster.add(claim(name, device)))
        ended = node.cluster.add(claim("ended", "gpu-0-1g-1gb-at-2"))
        await node.kubelet.prepare(ended)
        await node.kubelet.unprepare(ended)
        copy.mkdir()
        for path in node.settings.state.glob("checkpoint.*"):
            shutil.copy(path, copy)
    return copy


def restore(node: Machine, killed: Path) -> None:
    for path in node.settings.state.glob("checkpoint.*"):
        path.unlink()
    for path in killed.iterdir():
        shutil.copy(path, node.settings.state)


async def start(node: Machine) -> str:
    """Return why the plugin refuses to start; empty: it runs, and each claim can be prepared again."""
    try:
        async with node.plugin():
            for name, device in CLAIMS.items():
                await node.kubelet.prepare(node.cluster.add(claim(name, device)))
    except (CheckpointError, ExceptionGroup) as error:
        leaves = list(iter_leaf_errors(error))
        assert all(isinstance(leaf, CheckpointError) for leaf in leaves), leaves
        return str(leaves[0])
    return ""


async def damage_and_start(count: int) -> int:
    """Returns how many samples were refused."""
    refused = 0
    with machine() as node:
        killed = await use_and_kill(node)
        made, files = dict(node.backend.made), [(name, node.store.path(name).read_text()) for name in node.cdi_files]
        for damage in damages(count):
            restore(node, killed)
            damage.apply(node.settings.state)
            refusal = await start(node)
            assert str(node.settings.state) in refusal or not refusal
            refused += bool(refusal)
            assert node.backend.made == made, damage
            assert [(name, node.store.path(name).read_text()) for name in node.cdi_files] == files, damage
    return refused


async def test_a_damaged_state_is_refused_or_complete_and_costs_no_pod_its_devices() -> None:
    assert await damage_and_start(SAMPLES) > 0


@pytest.mark.long
async def test_no_damage_of_the_state_costs_a_pod_its_devices() -> None:
    assert await damage_and_start(MORE_SAMPLES) > MORE_SAMPLES / 3


async def test_an_undamaged_state_is_complete() -> None:
    with machine() as node:
        restore(node, await use_and_kill(node))
        assert await start(node) == ""


async def test_a_wiped_state_folder_is_refused_while_claims_have_files() -> None:
    with machine() as node:
        await use_and_kill(node)
        made, files = dict(node.backend.made), node.cdi_files
        shutil.rmtree(node.settings.state)
        node.settings.state.mkdir()
        assert "checkpoint.db: it is missing though 3 claims are prepared: there is" in await start(node)
        assert (node.backend.made, node.cdi_files) == (made, files)


async def test_nobody_is_told_a_new_node_while_cdi_files_cannot_be_listed() -> None:
    with machine() as node:
        node.settings.cdi_dir.write_text("a file")
        assert "CDI files show which claims are prepared: make their directory readable" in await start(node)


async def test_an_old_backup_of_the_state_folder_takes_nothing_from_claims_that_it_does_not_know() -> None:
    """All its files fit together: what they do not have is in CDI files and on the cards."""
    with machine() as node:
        async with node.plugin():
            await node.kubelet.prepare(node.cluster.add(claim("a", CLAIMS["a"])))
        backup = shutil.copytree(node.settings.state, node.root / "backup", ignore=shutil.ignore_patterns("*.sock"))
        await use_and_kill(node)
        made, files = dict(node.backend.made), node.cdi_files
        restore(node, backup)
        async with node.plugin():
            assert (node.backend.made, node.cdi_files) == (made, files)
        told = [(reason, message) for _, _, reason, message in node.cluster.reported]
        assert [reason for reason, _ in told].count("RecordLost") == 2
        assert any(reason == "InUseOutsideKerf" and "1g.1gb at 1" in message for reason, message in told)
