"""A node whose plugin is killed and started again: its folders, its cards, its claims, and what the kubelet knows."""

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import anyio
import pynvml
from anyio.abc import TaskStatus

from kerf_dra import cdi
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.claims.cdi_spec import file_prefix
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.preparer import ClaimPreparer
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesError
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from kerf_dra.driver.kubeletplugin.instance import acquire_free_lock
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.mps.documents import LOCK
from kerf_dra.driver.runtime import file_lock
from kerf_dra.driver.runtime.file_lock import FileLock
from tests.fakes.claims import DRIVER, NODE, claim, config, ref, result
from tests.fakes.cluster import FakeCluster
from tests.fakes.kubelet import ClaimError, FakeKubelet
from tests.kubeletplugin.plugin_builder import build_instance, build_parts, run_instance, running_parts

BOOT: Final = "boot-1"
METADATA: Final = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "deviceMetadata": True}
SHARING: Final = "sharing"
"""The folder of what the plugin has set up for cards that are shared."""
PAUSE: Final = "pause"
"""The file that is locked while no request for a daemon is answered (``mps_daemons``)."""
LONGEST_S: Final = 120.0
"""Of one life of the plugin: each takes tenths of a second on an idle machine."""

CLAIMS: Final[Mapping[tuple[int, int], Sequence[ResourceClaim]]] = {
    (1, 1): [claim("a", "gpu-0-1g-20gb-at-0", "gpu-0-3g-40gb-at-4", configs=[config(METADATA)])],
    (1, 2): [claim("a", "gpu-0-3g-40gb-at-4", "gpu-1-1g-20gb-at-0", configs=[config(METADATA)])],
    (3, 1): [
        claim("a", "gpu-0-1g-20gb-at-0", configs=[config(METADATA)]),
        claim("b", "gpu-0-2g-20gb-at-2"),
        claim("c", "gpu-0-3g-40gb-at-4"),
    ],
    (3, 2): [
        claim("a", "gpu-0-3g-40gb-at-4", "gpu-1-1g-20gb-at-0", configs=[config(METADATA)]),
        claim("b", "gpu-0-2g-20gb-at-0"),
        claim("c", "gpu-1-3g-40gb-at-4"),
    ],
}
"""By the number of claims and of cards."""

Place = tuple[int, str, int]
"""Number of the card, profile, first memory slice."""


class WholeCard(NamedTuple):
    """What a card says of itself, beside its partitions."""

    uuid: str
    compute_mode: int
    """NVML_COMPUTEMODE_*."""
    time_slice: int
    """As ``nvidia-smi compute-policy --set-timeslice`` numbers them."""


class Cards(Protocol):
    """The cards of the node, which outlive every process."""

    def open_backend(self) -> Backend:
        """A backend of the cards, as a plugin opens one."""
        ...

    def look(self) -> Mapping[Place, str]:
        """What is on the cards, with its UUID, asked without Kerf."""
        ...

    def look_at_wholes(self) -> Mapping[str, WholeCard]:
        """What the cards say of themselves, by the names of their devices; empty: they cannot be shared."""
        ...

    def save(self) -> bytes: ...

    def restore(self, saved: bytes) -> None: ...

    def reboot(self) -> None:
        """Boot the machine: nothing is on the cards any more."""
        ...


@dataclass(frozen=True, kw_only=True)
class SharedCard:
    """How claims share a whole card by a strategy."""

    claims: Sequence[ResourceClaim]
    compute_mode: int
    """That of the card, meanwhile."""
    time_slice: int
    """The same."""
    active_thread_percentage: int | None = None
    """What the card's MPS control daemon allows any client: the largest limit of all claims; None: there is none."""


def _share(sharing: JsonObject) -> JsonObject:
    return {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharing": sharing}


BY_TIME_SLICES: Final = SharedCard(
    claims=[
        claim(
            "a",
            "gpu-0",
            configs=[config(_share({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Long"}}))],
        )
    ],
    compute_mode=pynvml.NVML_COMPUTEMODE_DEFAULT,
    time_slice=3,
)
"""The containers of a claim share a card."""
BY_MPS: Final = SharedCard(
    claims=[
        claim(
            name,
            result("gpu-0-shared", share=f"share-of-{name}"),
            configs=[config(_share({"strategy": "Mps", "mps": {"activeThreadPercentage": percentage}}))],
        )
        for name, percentage in (("a", 20), ("b", 50))
    ],
    compute_mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    time_slice=0,
    active_thread_percentage=50,
)
"""Two claims share a card."""


@dataclass
class Node:
    """A node, below ``root``, and its kubelet's memory."""

    root: Path
    cards: Cards
    claims: Sequence[ResourceClaim]
    boot_id: str = BOOT
    sharing: SharedCard | None = None
    """How the claims share a card, for which the plugin has a folder; None: they do not."""
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        self.settings = Settings(
            node_name=NODE,
            family=GPU,
            backends=(BackendChoice(name="none"),),
            kubelet_root=self.root / "kubelet",
            state_dir=self.root / "state",
            cdi_dir=self.root / "cdi",
            rpc_grace_s=0.0,
            shutdown_grace_s=0.5,
            publish_min_interval_s=0.05,
        )

    @property
    def folders(self) -> Sequence[Path]:
        """What the plugin writes to."""
        return [self.root / name for name in ("kubelet", "state", "cdi", *([SHARING] if self.sharing else []))]

    @property
    def log(self) -> Path:
        """The system calls that were counted."""
        return self.root / "calls"

    @property
    def _mps_lock(self) -> Path:
        """The file that whoever keeps daemons of MPS holds locked, which therefore is always the same."""
        return self.root / SHARING / LOCK

    @property
    def _answers(self) -> Path:
        return self.root / "answers"

    # What outlives processes

    def save(self) -> "Saved":
        files = {}
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                if not path.is_socket() and path != self._mps_lock:
                    content = path.read_bytes() if path.is_file() else None
                    files[path] = (path.stat().st_mode & 0o777, content)
        return Saved(files=files, cards=self.cards.save(), answers=self.read_answers(), boot_id=self.boot_id)

    def restore(self, saved: "Saved") -> None:
        with file_lock.acquire(self.root / PAUSE):
            self._restore(saved)

    def _restore(self, saved: "Saved") -> None:
        for folder in self.folders:
            folder.mkdir(exist_ok=True)
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != self._mps_lock:
                    path.unlink()
        self.settings.registration_socket.parent.mkdir()
        for path, (mode, content) in saved.files.items():
            if content is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(content)
            path.chmod(mode)
        self.cards.restore(saved.cards)
        self._answers.write_text("".join(f"{json.dumps([uid, known])}\n" for uid, known in saved.answers.items()))
        self.boot_id = saved.boot_id

    def age(self) -> None:
        """Let a minute pass since files were written."""
        for folder in self.folders:
            for path in folder.rglob("*"):
                os.utime(path, (0, 0), follow_symlinks=False)

    def read_log(self, number: int) -> str:
        """Return the system call of this number, with its path below the root; empty: there was none."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return lines[number - 1].replace(f"{self.root}/", "") if 0 < number <= len(lines) else ""

    # The kubelet

    def note_answer(self, uid: str, answer: Mapping[str, str] | None) -> None:
        """Note what the kubelet was told: the CDI devices by name of a claim that is prepared; None: it is not."""
        with self._answers.open("a") as file:
            file.write(f"{json.dumps([uid, answer])}\n")

    def read_answers(self) -> dict[str, Mapping[str, str] | None]:
        """Return the latest answer for each claim that has one."""
        return (
            dict(json.loads(line) for line in self._answers.read_text().splitlines()) if self._answers.exists() else {}
        )

    def forget_answers(self) -> None:
        self._answers.unlink()

    @asynccontextmanager
    async def plugin(self) -> AsyncIterator["Life"]:
        """The plugin without its sockets, as an instance starts it (``Instance``). Raises what ends its process."""
        lock = self._lock()
        with lock, anyio.fail_after(LONGEST_S):
            opened = open_checkpoint(self.settings.state, boot_id=self.boot_id, find_cdi_files=self._find_cdi_files)
            with opened as checkpoint:
                backend = self.cards.open_backend()
                async with anyio.create_task_group() as tasks:
                    plugin = build_parts(
                        self.settings,
                        self._make_cluster(),
                        backend,
                        checkpoint,
                        tasks,
                        boot_id=self.boot_id,
                        list_uses=self._list_uses,
                    )
                    async with running_parts(plugin):
                        yield PluginLife(self, plugin.preparer)
                    tasks.cancel_scope.cancel()
                await plugin.close()

    @asynccontextmanager
    async def instance(self) -> AsyncIterator["Life"]:
        """The plugin with its sockets, registered with a kubelet. Raises what ends its process."""
        kubelet = _Kubelet(self.settings)
        with anyio.fail_after(LONGEST_S):
            async with anyio.create_task_group() as group:
                await group.start(self._run)
                await kubelet.register()
                yield InstanceLife(self, kubelet)
                group.cancel_scope.cancel()

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        instance = build_instance(self.settings, self._make_cluster(), self.cards.open_backend(), boot_id=self.boot_id)
        await run_instance(instance, self.settings, boot_id=self.boot_id, task_status=task_status)

    def _lock(self) -> FileLock:
        lock = acquire_free_lock(self.settings, InstanceLock(self.settings.state), boot_id=self.boot_id)
        assert lock is not None
        return lock

    def _make_cluster(self) -> FakeCluster:
        cluster = FakeCluster()
        for held in self.claims:
            cluster.add(held)
        return cluster

    def _find_cdi_files(self) -> Sequence[Path]:
        store = cdi.Store(self.settings.cdi_dir)
        return [store.path(name) for name in store.names(file_prefix(DRIVER))]

    async def _list_uses(self) -> Sequence[ClaimUse]:
        raise PodResourcesError("there is no kubelet")


class _Kubelet(FakeKubelet):
    """A kubelet that makes no calls of its own on the plugin's files, which would be counted."""

    def __init__(self, settings: Settings) -> None:
        self._socket = settings.registration_socket
        super().__init__(settings.kubelet_root)

    def make_folder(self) -> None:
        """There is one: see ``Node.restore``."""

    @property
    def sockets(self) -> list[Path]:
        return [self._socket]


@dataclass(frozen=True)
class Saved:
    """What outlives processes, at one moment."""

    files: Mapping[Path, tuple[int, bytes | None]]
    """Mode and content; None: a folder."""
    cards: bytes
    answers: Mapping[str, Mapping[str, str] | None]
    boot_id: str


class Life(ABC):
    """A plugin that runs, as the kubelet calls it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def prepare(self) -> list[str]:
        """Prepare all claims at once, and note the answers; returns the errors."""

        async def prepare(claim: ClaimRef) -> None:
            self._node.note_answer(claim.uid, await self._prepare(claim))

        return await self._call_all(prepare)

    async def unprepare(self) -> list[str]:
        """Unprepare all claims at once, and note the answers; returns the errors."""

        async def unprepare(claim: ClaimRef) -> None:
            await self._unprepare(claim)
            self._node.note_answer(claim.uid, None)

        return await self._call_all(unprepare)

    @abstractmethod
    async def _prepare(self, claim: ClaimRef) -> dict[str, str]: ...

    @abstractmethod
    async def _unprepare(self, claim: ClaimRef) -> None: ...

    async def _call_all(self, call: Callable[[ClaimRef], Awaitable[None]]) -> list[str]:
        errors: list[str] = []

        async def one(claim: ClaimRef) -> None:
            try:
                await call(claim)
            except (KerfError, ClaimError) as error:
                errors.append(str(error))

        async with anyio.create_task_group() as group:
            for held in self._node.claims:
                group.start_soon(one, ref(held))
        return errors


class PluginLife(Life):
    """A plugin without sockets."""

    def __init__(self, node: Node, preparer: ClaimPreparer) -> None:
        super().__init__(node)
        self._preparer = preparer

    async def _prepare(self, claim: ClaimRef) -> dict[str, str]:
        record = await self._preparer.prepare_claim(claim)
        return {device.share.id.device: ",".join(device.cdi_ids) for device in record.devices}

    async def _unprepare(self, claim: ClaimRef) -> None:
        await self._preparer.unprepare_claim(claim)


class InstanceLife(Life):
    """A plugin with sockets."""

    def __init__(self, node: Node, kubelet: FakeKubelet) -> None:
        super().__init__(node)
        self._kubelet = kubelet

    async def _prepare(self, claim: ClaimRef) -> dict[str, str]:
        devices = await self._kubelet.prepare(claim)
        return {device.device_name: ",".join(device.cdi_device_ids) for device in devices}

    async def _unprepare(self, claim: ClaimRef) -> None:
        await self._kubelet.unprepare(claim)
