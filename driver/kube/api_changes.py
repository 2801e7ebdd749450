"""Notices that the API server has become another one while a program runs: another release, or other versions of DRA.

What a cluster serves is read once, when a program starts, and decides what the program does: which version it speaks,
how slices are laid out, which faults of the scheduler it works around. Nothing reports an upgrade, so the program
asks again at intervals and ends, to be started again with what there is now. While several API servers are upgraded
one after the other, the answers alternate: only a change that some answers in a row show counts.
"""

import logging
from typing import Final, Never

import anyio

from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.driver.kube.discovery import ApiFeatures, ClassicFeatures, discover_any
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.problem_log import ProblemLog

LOOKS: Final = Backoff(first_s=120.0, factor=1, limit_s=120.0, jitter=0.5)
"""The times between two looks: of 5,000 nodes, each with four small documents, 130 requests a second in all, which the
API server answers from its memory; and never all nodes at once."""
SAME_ANSWERS: Final = 3
"""The looks in a row that must show the same change: some seven minutes, in which most control planes with several API
servers are upgraded, so that programs start again once."""

_log = logging.getLogger(__name__)


class ApiChangedError(TransientError):
    """The API server serves something else than when the program started: it is to start again."""

    def __init__(self, before: str, now: str) -> None:
        super().__init__(f"the API server was {before} and is {now} now: this process ends, to be started again for it")


def describe_features(features: ApiFeatures | ClassicFeatures) -> str:
    """Return everything that programs decide by, for people and for comparison."""
    release = ".".join(map(str, features.kubernetes))
    if isinstance(features, ClassicFeatures):
        return f"Kubernetes {release} with {features.resource.resource_claims.api_version}, where drivers allocate"
    rules = features.device_taint_rules
    taints = f" and DeviceTaintRules of {rules.version}" if rules is not None else ""
    return f"Kubernetes {release}.{features.patch} with resource.k8s.io/{features.resource.version}{taints}"


async def watch_features(client: Client, known: ApiFeatures | ClassicFeatures) -> Never:
    """Look at intervals, until cancelled, whether the API server still serves what is ``known``.

    Raises ApiChangedError when it does not. A server without any usable DRA is logged once and left alone: another
    process could do no more there, and this one still unprepares claims.
    """
    before, problems = describe_features(known), ProblemLog(_log)
    last, times = before, 0
    for delay_s in LOOKS.delays():
        await anyio.sleep(delay_s)
        try:
            now = describe_features(await discover_any(client))
        except KerfError as error:
            problems.note("", f"cannot find out whether the API server still is {before}: {error}")
            continue
        problems.clear("")
        last, times = now, times + 1 if now == last else 1
        if now != before and times >= SAME_ANSWERS:
            raise ApiChangedError(before, now)
    raise AssertionError("delays never end")
