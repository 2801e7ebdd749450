"""The metrics of the controller's work (NE-13)."""

from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.controller.classic.cluster import ClassicCluster, eventually


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_passes_are_counted_by_the_rule_that_ended_them_and_timed(cluster: ClassicCluster) -> None:
    counted = {rule: sample("kerf_classic_passes_total", rule=rule) for rule in ("C-18", "C-17")}
    timed = sample("kerf_classic_pass_seconds_count", what="claim")
    await cluster.claim("fits")
    await cluster.has("fits")
    await cluster.parameters("whole", {"cut": "Whole"})
    await cluster.class_("whole")
    await cluster.claim("waits", "whole")
    await cluster.says("ResourceClaim", "waits", "no node has free devices for the claim")

    async def all_counted() -> bool:
        return all(sample("kerf_classic_passes_total", rule=rule) > before for rule, before in counted.items())

    await eventually(all_counted)
    assert sample("kerf_classic_pass_seconds_count", what="claim") >= timed + 2


async def test_what_waits_is_looked_at_again_although_nothing_happens(cluster: ClassicCluster) -> None:
    # S-18, Q-13
    await cluster.parameters("whole", {"cut": "Whole", "models": ["a30-24gb"]})
    await cluster.class_("whole")
    await cluster.claim("waits", "whole")
    await cluster.says("ResourceClaim", "waits", "no node has free devices for the claim")
    before = sample("kerf_classic_passes_total", rule="C-17")

    async def looked_at_again() -> bool:
        return sample("kerf_classic_passes_total", rule="C-17") >= before + 3

    await eventually(looked_at_again)
