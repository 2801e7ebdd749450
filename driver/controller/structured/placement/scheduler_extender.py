"""One request of kube-scheduler: the scores of the nodes on which a pod fits.

The wire types are those of ``k8s.io/kube-scheduler/extender/v1``: ``ExtenderArgs`` in, ``HostPriorityList`` out. Go
matches the names of fields whatever their case, so both ``NodeNames`` and ``nodenames`` are read.

A pod without devices is answered from the request alone, and one whose classes ask for no preference without a search.
Scoring stops after ``SCORING_S``: nodes that were not tried
by then get the score 0. It runs in the event loop, because the allocator's state must not change meanwhile.
"""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from kerf_dra.api.core.v1 import PODS, Pod
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.json_limits import make_readable
from kerf_dra.api.wire import UndecodableObjectError
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.placement.placement_index import PlacementIndex
from kerf_dra.driver.placement.class_placement import PodPlacement
from kerf_dra.driver.placement.node_scores import Rank, score_nodes
from kerf_dra.driver.runtime import metrics

SCORING_S: Final = 0.1
"""The longest time for the scores of one request: half of the scheduler's timeout (``httpTimeout: 200ms``), and short
enough for the leader's other work in the same event loop."""
MOST_NODES: Final = 5_000
"""The most nodes in a request: those of the largest clusters that Kubernetes supports. More get the score 0."""

_requests: Final = metrics.counter(
    "kerf_placement_requests_total", "Requests of kube-scheduler for scores of nodes, by outcome.", ("outcome",)
)
_scores: Final = metrics.counter("kerf_placement_scores_total", "Nodes that got a score by their devices.")
_seconds: Final = metrics.histogram(
    "kerf_placement_seconds",
    "Time to score the nodes of one pod with devices.",
    (),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
)


class RequestOutcome(StrEnum):
    """The outcome of a request."""

    SCORED = "scored"
    """All nodes on which the pod fits have scores."""
    NO_DEVICES = "no-devices"
    """The pod has no devices to allocate: every score is 0."""
    NO_PREFERENCE = "no-preference"
    """The pod's classes ask for ``placement: None``, or contradict each other: every score is 0."""
    UNKNOWN_CLAIM = "unknown-claim"
    """The informers do not show a claim of the pod yet: every score is 0."""
    LATE = "late"
    """Time ran out: nodes that were not tried have the score 0."""
    INVALID = "invalid"
    """The request was refused: it is no ExtenderArgs with a pod and names of nodes."""
    BUSY = "busy"
    """The request was refused: too many were being read."""


class InvalidRequestError(KerfError):
    """A body is no ``ExtenderArgs`` with a pod and names of nodes."""


class ExtenderArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The part of ``ExtenderArgs`` that ``prioritize`` reads (``nodeCacheCapable: true``)."""

    pod: Pod
    node_names: tuple[str, ...]


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """The score of a node (``HostPriority``)."""

    host: str
    score: int


_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_names_decoder: Final = msgspec.json.Decoder(tuple[str, ...] | None)


class SchedulerExtender:
    """Answers ``prioritize``."""

    def __init__(
        self, index: PlacementIndex, activity: ExtenderActivity, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._index = index
        self._activity = activity
        self._monotonic = monotonic

    def prioritize(self, body: bytes) -> bytes:
        """Return the ``HostPriorityList`` for the ``ExtenderArgs`` in ``body``. Raises InvalidRequestError."""
        try:
            args = decode_args(body)
        except InvalidRequestError:
            count_request(RequestOutcome.INVALID)
            raise
        self._activity.note_asked()
        ranks, outcome = self._rank(args)
        count_request(outcome)
        _scores.inc(len(ranks))
        scores = score_nodes(args.node_names, ranks)
        return msgspec.json.encode([_HostPriority(host, score) for host, score in scores.items()])

    def _rank(self, args: ExtenderArgs) -> tuple[dict[str, Rank], RequestOutcome]:
        claims = self._index.find_unallocated(args.pod)
        if claims is None:
            return {}, RequestOutcome.UNKNOWN_CLAIM
        if not claims:
            return {}, RequestOutcome.NO_DEVICES
        placement = self._index.find_placement(claims)
        if placement.rule == "None":
            return {}, RequestOutcome.NO_PREFERENCE
        with _seconds.time():
            return self._rank_nodes(claims, placement, args.node_names[:MOST_NODES])

    def _rank_nodes(
        self, claims: Sequence[ResourceClaim], placement: PodPlacement, names: Sequence[str]
    ) -> tuple[dict[str, Rank], RequestOutcome]:
        ends_at = self._monotonic() + SCORING_S
        ranks: dict[str, Rank] = {}
        for ranked in self._index.rank_nodes(claims, placement, names):
            ranks |= dict.fromkeys(ranked.nodes, ranked.rank)
            if self._monotonic() > ends_at:
                return ranks, RequestOutcome.LATE
        return ranks, RequestOutcome.SCORED


def count_request(outcome: RequestOutcome) -> None:
    """Count a request with its outcome."""
    _requests.labels(outcome.value).inc()


def decode_args(body: bytes) -> ExtenderArgs:
    """Decode ``ExtenderArgs``. Raises InvalidRequestError."""
    try:
        fields = {name.lower(): raw for name, raw in _fields_decoder.decode(make_readable(body)).items()}
        if "pod" not in fields:
            raise InvalidRequestError("the body has no pod")
        names = _names_decoder.decode(fields["nodenames"]) if "nodenames" in fields else None
        pod = PODS.decode(fields["pod"])
    except (msgspec.DecodeError, UndecodableObjectError, RecursionError) as error:
        raise InvalidRequestError(f"the body is no ExtenderArgs: {error}") from error
    if names is None:
        raise InvalidRequestError("the body has no names of nodes: set nodeCacheCapable to true for this extender")
    return ExtenderArgs(pod=pod, node_names=names)
