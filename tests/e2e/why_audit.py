"""An audit of ``kerf why`` on every pod with devices that waits or ends while the tests of a cluster run.

The pods of all namespaces are listed every second. One that has waited for a node, started or ended for some seconds is
asked about, by ``kerf why pods`` as a user asks; each answer must have a reason code of the documented list and a next
step, and none may say that all is well of a pod that does not run. A pod that stays is asked about again: then
``preparing``, which says that nothing was found, is no answer any more.
"""

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import aiohttp
import anyio

from kerf_dra.driver.diagnostics.explain.report import CODES, CauseCode
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster, load_factor

PATIENCE_S: Final = 3.0
"""The age of a stage at which a pod is asked about: a pod that nothing keeps has left it by then, as a rule."""
LONG_S: Final = 30.0
"""The age at which it is asked about again, times the load. The kubelet syncs a pod that nothing has told it of within
15 s."""
_POLL_S: Final = 1.0
_FAILURES: Final = 5
"""Times in a row that ``kerf why`` may have no answer: tests take the API server away, and it comes back."""
_EMPTY: Final = frozenset({CauseCode.PREPARING})
"""Codes that name no reason: right for a moment, and not for a pod that stays."""


_ABOUT_TO_START: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""The kubelet's reasons for containers that wait for nothing of their own."""
_WELL: Final = frozenset({"has-devices"})
"""The verdicts that all is well, which no pod has that does not run."""


class Stage(StrEnum):
    """What a pod with devices is doing."""

    WAITING = "waiting for a node"
    STARTING = "starting"
    FAILING = "on a node, with a container that does not run"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Stay:
    """One pod in one stage."""

    namespace: str
    name: str
    uid: str
    stage: Stage


def find_stays(pods: Sequence[Document]) -> Iterator[Stay]:
    """Yield the pods with devices that wait, start, fail or end."""
    for pod in pods:
        metadata = pod["metadata"]
        if stage := _stage_of(pod):
            yield Stay(metadata["namespace"], metadata["name"], metadata["uid"], stage)


def _stage_of(pod: Document) -> Stage | None:
    spec, status = pod["spec"], pod.get("status", {})
    has_devices = spec.get("resourceClaims") or status.get("extendedResourceClaimStatus")
    if not has_devices or status.get("phase") in ("Succeeded", "Failed"):
        return None
    if "deletionTimestamp" in pod["metadata"]:
        return Stage.ENDING
    if status.get("phase") != "Pending":
        return Stage.FAILING if _waiting_reasons(status) - _ABOUT_TO_START else None
    if "nodeName" not in spec:
        return Stage.WAITING
    return None if _is_creating(status) else Stage.STARTING


def _is_creating(status: Document) -> bool:
    """Whether the pod has its devices, and nothing is known to keep its containers from starting."""
    is_ready = any(
        one["type"] == "PodReadyToStartContainers" and one["status"] == "True" for one in status.get("conditions", ())
    )
    return is_ready and _waiting_reasons(status) <= _ABOUT_TO_START


def _waiting_reasons(status: Document) -> set[str]:
    """Return why containers wait."""
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {one["state"]["waiting"].get("reason", "") for one in containers if "waiting" in one.get("state", {})}


def find_flaws(report: Document, *, is_long: bool) -> Iterator[str]:
    """Yield what a user misses in the report on a pod that does not run or ends; ``is_long``: for LONG_S now."""
    if report.get("verdict") in _WELL:
        yield "all is well, of a pod that does not run"
    codes = {cause["code"] for cause in report["causes"]}
    if not codes:
        yield "no reason"
    if is_long and codes and codes <= _EMPTY:
        yield f"no reason after {LONG_S:g} s but {', '.join(codes)}"
    for cause in report["causes"]:
        if cause["code"] not in CODES:
            yield f"reason code {cause['code']!r}, which is not in the list"
        for field in ("message", "next_step"):
            if not cause[field].strip():
                yield f"{cause['code']}: no {field}"


async def ask_why(cluster: Cluster, *arguments: str) -> tuple[int, Document]:
    """Return the exit code and the document of ``kerf why``."""
    result = await _run_why(cluster, *arguments)
    assert result.stdout, result.stderr.decode()
    document: Document = json.loads(result.stdout)
    return result.returncode, document


async def _run_why(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "why", *arguments, "--kubeconfig", str(cluster.kubeconfig)]
    return await anyio.run_process([*command, "-o", "json"], check=False, stderr=subprocess.PIPE)


@asynccontextmanager
async def auditing(cluster: Cluster, api: Api, answers: Path) -> AsyncIterator["WhyAudit"]:
    """Audit the pods of ``cluster`` within the context; at its end all reports are written to ``answers``."""
    audit = WhyAudit(cluster, api)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(audit.watch)
        yield audit
        tasks.cancel_scope.cancel()
    answers.parent.mkdir(parents=True, exist_ok=True)
    answers.write_text(json.dumps(audit.answers, indent=1))


class WhyAudit:
    """Asks ``kerf why`` about the pods of one cluster."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        self._cluster = cluster
        self._api = api
        self._since: dict[Stay, float] = {}
        self._asked: dict[Stay, float] = {}
        """The age at which each was asked about last."""
        self._failures = 0
        self._lock = anyio.Lock()
        self.answers: list[Document] = []
        """All reports so far."""
        self.flaws: list[str] = []
        """What was missing in reports, and not yet told."""

    async def watch(self) -> None:
        """Audit pods that stay in a stage, until cancelled."""
        while True:
            await self.audit()
            await anyio.sleep(_POLL_S)

    async def audit(self, *, at_once: bool = False) -> None:
        """Ask about the pods that are due; ``at_once``: about those too that have only just begun to wait or end."""
        async with self._lock:
            ages = await self._read_ages()
            due = [stay for stay, age_s in ages.items() if self._is_due(stay, age_s, at_once=at_once)]
            for namespace in sorted({stay.namespace for stay in due}):
                await self._ask(namespace, {stay: ages[stay] for stay in due if stay.namespace == namespace})

    def take_flaws(self) -> Sequence[str]:
        """Return what was missing in reports since the last call."""
        flaws, self.flaws = self.flaws, []
        return flaws

    async def _read_ages(self) -> Mapping[Stay, float]:
        """Return for how many seconds pods have been seen in their stage.

        Without an API server nothing moves: ages begin anew when it is back.
        """
        try:
            stays = set(find_stays(await self._api.list("v1", "Pod")))
        except (aiohttp.ClientError, StatusError, TimeoutError):
            stays = set()
        now = time.monotonic()
        self._since = {stay: self._since.get(stay, now) for stay in stays}
        return {stay: now - since for stay, since in self._since.items()}

    def _is_due(self, stay: Stay, age_s: float, *, at_once: bool) -> bool:
        asked_s = self._asked.get(stay)
        if asked_s is None:
            return at_once or age_s >= PATIENCE_S
        return asked_s < LONG_S * load_factor() <= age_s

    async def _ask(self, namespace: str, ages: Mapping[Stay, float]) -> None:
        """Ask about the pods of ``namespace``, of which those of ``ages`` are due."""
        result = await _run_why(self._cluster, "pods", "-n", namespace)
        self._failures = 0 if result.stdout else self._failures + 1
        if not result.stdout:
            if self._failures >= _FAILURES:
                self.flaws.append(f"kerf why ends with {result.returncode}: {result.stderr.decode()}")
            return
        reports = {report["subject"]["name"]: report for report in json.loads(result.stdout)["pods"]}
        still = await self._read_ages()
        for stay, age_s in ages.items():
            self._asked[stay] = age_s
            report = reports.get(stay.name)
            if report is not None:
                self.answers.append(report)
                has_moved_on = report["verdict"] in _WELL and stay not in still
                flaws = [] if has_moved_on else [*find_flaws(report, is_long=age_s >= LONG_S * load_factor())]
            else:
                flaws = ["kerf why knows no such pod"] if stay in still else []
            self.flaws += (f"pod {namespace}/{stay.name}, {stay.stage}: {flaw}; {report}" for flaw in flaws)
