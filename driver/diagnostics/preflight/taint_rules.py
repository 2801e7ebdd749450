"""Whether an administrator's DeviceTaintRule takes more devices away than one would expect of it.

A rule without a selector, or with an empty one, taints every device of every driver: with the effect NoExecute every
pod of the cluster that has a device is evicted (kubernetes/kubernetes#141422, #141620).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from kerf_dra.api.model.devices import DeviceTaintRule
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, ok, problem, warning

CHECK: Final = "taint-rules"
_EVICTS: Final = "NoExecute"
_EXCLUDES: Final = "NoSchedule"


def check_taint_rules(rules: Iterable[DeviceTaintRule], own: Collection[str]) -> Iterator[CheckResult]:
    """Check the rules that taint all devices, or all those of a driver in ``own``."""
    found = [result for rule in rules for result in _check_rule(rule, own)]
    yield from found
    if not found:
        yield ok(CHECK, "no DeviceTaintRule takes all devices, or all of a driver of Kerf's, from pods")


def _check_rule(rule: DeviceTaintRule, own: Collection[str]) -> Iterator[CheckResult]:
    selector, effect, name = rule.spec.device_selector, rule.spec.taint.effect, rule.metadata.name
    if effect not in (_EVICTS, _EXCLUDES):
        return  # it only informs
    outcome = (
        "every pod that has one and does not tolerate it is evicted"
        if effect == _EVICTS
        else "no claim that does not tolerate it gets one"
    )
    if selector is None or not (selector.driver or selector.pool or selector.device):
        what = "has no selector" if selector is None else "has an empty selector"
        say = problem if effect == _EVICTS else warning
        yield say(
            CHECK,
            f"DeviceTaintRule {name} {what}, which means all devices of all drivers: {outcome}",
            f"name a driver, pool or device in its spec.deviceSelector, or delete it: kubectl delete devicetaintrule "
            f"{name}",
        )
    elif selector.driver in own and not (selector.pool or selector.device):
        yield warning(
            CHECK,
            f"DeviceTaintRule {name} taints all devices of {selector.driver}: {outcome}",
            f"unless that is meant, name a pool or a device in its spec.deviceSelector, or delete it: kubectl delete "
            f"devicetaintrule {name}",
        )
