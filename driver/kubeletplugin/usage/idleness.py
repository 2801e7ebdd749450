"""Decides whether a device that a claim has is idle: nothing has computed on it for a time. Pure.

A device is *quiet* in a sample when no process computes on it, or, where the hardware measures it, when it hardly
computed. It becomes idle when all samples of a time were quiet, and busy with the first that is not. Two thresholds
keep a device that computes a little from changing to and fro: what ends idleness is more than what keeps a device busy.

A sample that says nothing is never quiet. One or a few that are missing change nothing; after more of them it is not
known any more whether the device is idle, and the time begins again.
"""

from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample

QUIET_BELOW: Final = 0.01
"""The part of the time in which a busy device computes at least: 1 %, the step in which NVML counts. A program that
waits for requests is below it."""
BUSY_FROM: Final = 0.05
"""The part of the time in which an idle device computes once it is busy: more than a check of its health takes."""
_LONGEST_GAP_S: Final = 300.0
"""Time without samples that changes nothing: a plugin that is updated is back by then."""
_MISSED_SAMPLES: Final = 4
"""Samples that may be missing where the interval between them is longer than that."""


class IdleRules(NamedTuple):
    """When a device is idle."""

    idle_after_s: float
    """Seconds of quiet samples after which it is."""
    interval_s: float
    """Seconds between two samples."""

    @property
    def longest_gap_s(self) -> float:
        """Seconds without a sample after which it is not known any more."""
        return max(_LONGEST_GAP_S, _MISSED_SAMPLES * self.interval_s)


class IdleState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one device's use. Times are in seconds since 1970."""

    sampled_at: float
    """When it was sampled last with an answer."""
    quiet_since: float | None = None
    """When the first of the latest samples was taken, all of which were quiet; None: the latest was not."""
    is_idle: bool = False

    @property
    def idle_since(self) -> float | None:
        """Since when it is idle; None: it is not."""
        return self.quiet_since if self.is_idle else None


def add_sample(state: IdleState | None, sample: DeviceSample, now: float, rules: IdleRules) -> IdleState | None:
    """Return what is known of a device after a sample of it; None: nothing. ``now`` is in seconds since 1970."""
    known = None if state is None or now - state.sampled_at > rules.longest_gap_s else state
    is_quiet = _is_quiet(sample, is_idle=known is not None and known.is_idle)
    if is_quiet is None:
        return known
    if not is_quiet:
        return IdleState(sampled_at=now)
    if known is None or known.quiet_since is None:
        return IdleState(sampled_at=now, quiet_since=now, is_idle=rules.idle_after_s <= 0)
    quiet_since = min(known.quiet_since, now)  # the clock may have been set back
    return replace(
        known,
        sampled_at=now,
        quiet_since=quiet_since,
        is_idle=known.is_idle or now - quiet_since >= rules.idle_after_s,
    )


def _is_quiet(sample: DeviceSample, *, is_idle: bool) -> bool | None:
    """Whether nothing computed; None: the sample does not say."""
    if sample.busy is not None:
        return sample.busy < (BUSY_FROM if is_idle else QUIET_BELOW)
    return None if sample.processes is None else sample.processes == 0
