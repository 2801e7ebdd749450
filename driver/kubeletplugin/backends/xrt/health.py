"""The health of Alveo cards: what their states mean. Pure.

Temperatures are not judged: the driver shows them without the limits of the card, which stops its kernels by itself.
"""

from kerf_dra.driver.kubeletplugin.backends.base import HealthState, UnhealthyState
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import XrtCondition


def judge_condition(condition: XrtCondition) -> UnhealthyState | None:
    """Return what is not healthy of a card; None: it is healthy. A card has no parts of its own."""
    lost = []
    if condition.is_offline:
        lost.append("its driver has taken it out of service (dev_offline)")
    if condition.is_stuck:
        lost.append("a compute unit hangs, and the card needs a reset (device_bad_state)")
    if condition.firewall_level:
        lost.append(f"its AXI firewall {condition.firewall_level} has tripped")
    if lost:
        return UnhealthyState(HealthState.LOST, "; ".join(lost))
    if not condition.is_ready:
        reason = "the driver of its management function, or its daemon, cannot be reached (ready)"
        return UnhealthyState(HealthState.UNHEALTHY, reason)
    return None
