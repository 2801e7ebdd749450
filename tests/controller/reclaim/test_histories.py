"""Any history of people, pods, a late plugin, late caches, refusals and kills: the reclaimer evicts no pod twice, none
of a card that is not drained and withheld, and none that must not be evicted; at the end each card is free or stuck.

The judge of evictions is in the cluster (``create_subresource``).
"""

from typing import Any

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.kube.http.errors import ForbiddenError, ServerError, UnreachableError
from kerf_dra.driver.reclaim.automatic_repairs import RepairLimits
from tests.conftest import COSTLY

from .cluster import CARDS, Cluster, KilledError

FIELDS = st.sampled_from(
    [{}, {}, {}, {"owner": None}, {"namespace": "kube-system"}, {"annotations": {"kerf.dev/do-not-evict": "true"}}]
)
ERRORS = st.sampled_from(
    [
        None,
        KilledError(),
        UnreachableError("POST", "refused"),
        ServerError("POST", 500, "InternalError", "down"),
        ForbiddenError("POST", 403, "Forbidden", "no"),
    ]
)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(settings=ReclaimSettings(limits=RepairLimits(cards=1, node_cards=1)))

    @initialize()
    def two_cards_have_pods(self) -> None:
        for number, card in enumerate(CARDS):
            self.cluster.run_pod(f"first-{number}", card)

    @rule(card=st.sampled_from(CARDS), name=st.sampled_from(["", "", "again"]))
    def somebody_drains_a_card(self, card: str, name: str) -> None:
        self.cluster.drain(card, name)

    @rule(card=st.sampled_from(CARDS))
    def somebody_ends_a_maintenance(self, card: str) -> None:
        self.cluster.maintenances.pop(f"drain-{card}", None)

    @rule()
    def the_plugin_follows(self) -> None:
        self.cluster.follow_maintenances()

    @rule(name=st.sampled_from(["a", "b", "c"]), card=st.sampled_from(CARDS), fields=FIELDS)
    def a_pod_starts(self, name: str, card: str, fields: dict[str, Any]) -> None:
        """On a withheld card, too: the scheduler has allocated it before it saw the taint."""
        if not any(ref.name == name for ref in self.cluster.pods):
            self.cluster.run_pod(name, card, **fields)

    @rule(data=st.data())
    def a_budget_protects_a_pod(self, data: st.DataObject) -> None:
        if self.cluster.pods:
            ref = data.draw(st.sampled_from(sorted(self.cluster.pods)))
            self.cluster.protected ^= {self.cluster.pods[ref].metadata.uid}

    @rule()
    def deleted_pods_end(self) -> None:
        self.cluster.end_deleted_pods()

    @rule(seconds=st.sampled_from([1, 30, 100]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.seconds += seconds

    @rule(error=ERRORS, number=st.integers(0, 4), is_done=st.booleans(), is_late=st.sampled_from([False, False, True]))
    def the_reclaimer_passes(self, error: Exception | None, number: int, is_done: bool, is_late: bool) -> None:
        if not is_late:
            self.cluster.deliver()
        left = [number]

        def answer(_verb: str, _name: str) -> Exception | None:
            left[0] -= 1
            return error if left[0] == -1 else None

        if is_done:
            self.cluster.lose_answer = answer
        else:
            self.cluster.fail = answer
        try:
            anyio.run(self.cluster.reclaimer.reconcile)
        except KilledError:
            self.cluster.new_process()
        self.cluster.fail = self.cluster.lose_answer = lambda _verb, _name: None

    def teardown(self) -> None:
        """Nothing else happens any more, and budgets allow evictions again."""
        self.cluster.protected = set()
        for _ in range(2 * len(CARDS) + 4):
            self.cluster.follow_maintenances()
            self.cluster.seconds += 100
            anyio.run(self.cluster.reconcile)
            self.cluster.end_deleted_pods()
        for name, held in self.cluster.maintenances.items():
            [card] = [card for card in CARDS if held["spec"]["card"].endswith(card.removeprefix("gpu"))]
            status = self.cluster.status(name)
            assert status.phase in ("Free", "Stuck", "Withheld"), (name, status)
            if status.phase != "Withheld":  # an older one is for the same card
                assert (status.phase == "Free") is not self.cluster.is_in_use(card), (name, status)
        before = len(self.cluster.calls)
        anyio.run(self.cluster.reconcile)
        assert [call for call in self.cluster.calls[before:] if call[0] not in ("list", "find")] == [], (
            "at rest nothing is written"
        )


TestHistories = Histories.TestCase
TestHistories.settings = settings(COSTLY, stateful_step_count=40, deadline=None)
