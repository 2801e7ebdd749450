"""Any interleaving of users, caches, failures and garbage collection: the controller never changes others' objects,
and once nothing else happens it reaches the desired state and writes no more.
"""

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kerf_dra.api.errors import InvalidDocumentError, PermanentError, TransientError
from kerf_dra.api.kerf.decoder import decode_resource_class_object
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.controller.device_types import known_device_types
from kerf_dra.driver.controller.structured.class_compiler import compile_class
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError, ServerError, UnreachableError
from tests.conftest import COSTLY
from tests.fakes.published_slices import gpus, slices

from .cluster import FAMILIES, Cluster, Write

NAMES = st.sampled_from(["a", "b"])
SPECS = st.sampled_from(
    [
        {"device": "gpu"},
        {"device": "gpu", "minimum": {"memory": "18Gi"}, "extendedResourceName": "example.com/gpu"},
        {"device": "gpu", "sharing": {"strategy": "TimeSlicing"}},
        {"device": "gpu", "profile": "9g.90gb"},
        {"device": "tpu"},
    ]
)
FAILURES = st.sampled_from(
    [
        ConflictError("PATCH", 409, "Conflict", "modified"),
        ServerError("PATCH", 500, "InternalError", "down"),
        UnreachableError("PATCH", "refused"),
        ForbiddenError("PATCH", 403, "Forbidden", "no"),
    ]
)
FOREIGN: JsonObject = {"selectors": [{"cel": {"expression": "false"}}]}


class Histories(RuleBasedStateMachine):
    """``foreign`` are the DeviceClasses that people made by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(lagging=True)
        self.foreign: dict[str, JsonObject] = {}
        self.sharing: list[list[str]] = []
        """The sharing strategies of the published cards."""

    @rule(name=NAMES, spec=SPECS)
    def somebody_writes_a_class(self, name: str, spec: JsonObject) -> None:
        self.cluster.put_class(name, spec)

    @rule(name=NAMES)
    def somebody_deletes_a_class(self, name: str) -> None:
        self.cluster.delete("ResourceClass", name)

    @rule(name=NAMES)
    def somebody_makes_a_device_class_by_hand(self, name: str) -> None:
        if ("DeviceClass", name) not in self.cluster.objects:
            self.cluster.put_device_class(name, spec=FOREIGN)
            self.foreign[name] = self.cluster.objects["DeviceClass", name]

    @rule(name=NAMES)
    def somebody_deletes_a_device_class(self, name: str) -> None:
        self.cluster.delete("DeviceClass", name)
        self.foreign.pop(name, None)

    @rule(name=NAMES)
    def somebody_edits_what_was_compiled(self, name: str) -> None:
        if ("DeviceClass", name) in self.cluster.objects and name not in self.foreign:
            self.cluster.put_device_class(name, spec={"selectors": [{"cel": {"expression": "true"}}]})

    @rule()
    def garbage_is_collected(self) -> None:
        self.cluster.collect_garbage()

    @rule()
    def the_caches_catch_up(self) -> None:
        self.cluster.deliver()

    @rule(model=st.sampled_from(["a30", "h100-80gb-sxm"]), sharing=st.sampled_from([[], ["TimeSlicing"]]))
    def a_node_publishes(self, model: str, sharing: list[str]) -> None:
        node = f"n-{model}-{len(sharing)}"  # whose slices are always the same
        self.cluster.publish(*slices(node, gpus(model, sharing=sharing)))
        self.sharing.append(sharing)

    @rule(seconds=st.sampled_from([0.1, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.seconds += seconds

    @rule()
    def the_controller_starts_anew(self) -> None:
        self.cluster.reconciler = self.cluster.new_reconciler()

    @rule(dropped=st.booleans())
    def a_feature_gate_is_set(self, dropped: bool) -> None:
        self.cluster.dropped_fields = frozenset({"extendedResourceName"} if dropped else ())

    @rule(name=NAMES, failure=st.none() | FAILURES, verb=st.sampled_from(["create", "patch", "status"]))
    def the_controller_passes(self, name: str, failure: Exception | None, verb: str) -> None:
        self.cluster.fail = lambda write: failure if write.verb == verb else None
        try:
            anyio.run(self.cluster.reconciler.reconcile, name)
        except (TransientError, PermanentError):
            pass  # the queue tries again, or reports it
        finally:
            self.cluster.fail = lambda _write: None

    @invariant()
    def what_people_made_is_as_they_made_it(self) -> None:
        for name, made in self.foreign.items():
            assert self.cluster.objects["DeviceClass", name] == made

    def teardown(self) -> None:
        anyio.run(self.left_alone)

    async def left_alone(self) -> None:
        cluster = self.cluster
        cluster.lagging = False
        cluster.seconds += 3600  # nothing that was remembered counts any more
        cluster.collect_garbage()
        for name in ("a", "b"):
            await cluster.settle(name)
        assert await self.writes_of_another_round() == []
        for name in ("a", "b"):
            self.check(name)

    async def writes_of_another_round(self) -> list[Write]:
        return [write for name in ("a", "b") for write in await self.cluster.settle(name)]

    def check(self, name: str) -> None:
        cluster = self.cluster
        if ("ResourceClass", name) not in cluster.objects:
            assert (cluster.device_class(name) is None) == (name not in self.foreign)
            return
        held = cluster.resource_class(name)
        statuses = {one.type: one.status for one in held.status.conditions}
        assert held.status.observed_generation == held.metadata.generation
        try:
            decoded = decode_resource_class_object(held)
            compiled = compile_class(decoded, families=FAMILIES, nodes=(), device_types=known_device_types())
        except InvalidDocumentError:
            assert statuses["Accepted"] == "False"
            return
        found = cluster.device_class(name)
        assert found is not None
        if name in self.foreign:
            assert statuses["Ready"] == "False"
            return
        assert found.spec.selectors == compiled.device_class.spec.selectors
        assert found.spec.config == compiled.device_class.spec.config
        kept = found.spec == compiled.device_class.spec
        assert kept or "extendedResourceName" in cluster.dropped_fields
        wanted = decoded.spec.sharing
        is_done = wanted is None or not self.sharing or any(wanted.strategy in done for done in self.sharing)
        assert statuses["Ready"] == ("True" if kept and is_done else "False")
        assert found.metadata.owner_references[0].uid == held.metadata.uid


Histories.TestCase.settings = settings(COSTLY, stateful_step_count=50)
TestHistories = Histories.TestCase
