"""Whether the reclaimer is installed as a whole: its account, its pods, and what it may do (docs/one-card.md)."""

from collections.abc import Iterable, Iterator
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.driver.diagnostics.preflight.permissions import RECLAIMER, AccountReview
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, name_first, ok, problem, warning

CHECK: Final = "reclaimer"
_NAME_LABEL: Final = "app.kubernetes.io/name"
"""The label with the program of a pod of Kerf's."""
_STEP: Final = "set reclaim.enabled of the chart, or apply deploy/reclaim as a whole"


def check_reclaimer(pods: Iterable[Pod], review: AccountReview) -> Iterator[CheckResult]:
    """Compare the reclaimer's pods among ``pods`` with what its account may do of what it needs."""
    running = [pod.metadata.name for pod in pods if pod.metadata.labels.get(_NAME_LABEL) == RECLAIMER]
    missing = name_first(map(str, sorted(review.denied)))
    has_none = len(review.denied) == len(review.needed)
    if not running and has_none:
        yield ok(CHECK, "there is no reclaimer: `kerf drain` withholds cards, and no pod is evicted")
    elif not running:
        yield warning(
            CHECK,
            f"service account {review.account} may evict pods, and no pod runs with it: `kerf drain` evicts none",
            f"{_STEP}; or delete its roles",
        )
    elif review.denied:
        what = "do nothing of what it needs" if has_none else f"not {missing}"
        yield problem(CHECK, f"{running[0]} runs, and service account {review.account} may {what}", _STEP)
    else:
        yield ok(CHECK, f"{name_first(running)} may do all that it needs ({len(review.needed)} permissions)")
