"""What the controller makes of the errors of a pass: each key has its own, and is tried again."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.controller.classic.app import ClassicController
from kerf_dra.driver.controller.classic.event_handlers import ReconcileKey
from kerf_dra.driver.controller.classic.reconcile_result import ReconcileResult
from kerf_dra.driver.controller.settings import Settings
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.kube.memory_server import MemoryServer
from tests.runtime.virtual_time import VIRTUAL_TIME

REFUSED, BUSY, FINE = (ReconcileKey("claim", ObjectRef("default", name)) for name in ("refused", "busy", "fine"))


class FailingReconciler:
    """A reconciler that fails with some claims, each time in the same way."""

    def __init__(self) -> None:
        self.passes: list[str] = []

    async def reconcile_claim(self, ref: ObjectRef) -> ReconcileResult:
        await anyio.lowlevel.checkpoint()
        self.passes.append(ref.name)
        if ref == REFUSED.ref:
            raise PermanentError("the API server refuses the claim's allocation")
        if ref == BUSY.ref:
            raise TransientError("the API server is busy")
        return ReconcileResult(rule="C-1")


def passes(rule: str) -> float:
    return REGISTRY.get_sample_value("kerf_classic_passes_total", {"rule": rule}) or 0


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_a_claim_that_is_refused_is_tried_again_at_the_interval_and_keeps_no_other_waiting(
    anyio_backend: object, tmp_path: Path
) -> None:
    settings = Settings(kubeconfig=tmp_path, identity="one", lease=ObjectRef("default", "lease"), recheck_s=30)
    features = ClassicFeatures(kubernetes=(1, 30), resource=KINDS)
    controller = ClassicController(MemoryServer().client(), features, settings)
    controller._reconciler = reconciler = FailingReconciler()  # type: ignore[assignment]
    before = {rule: passes(rule) for rule in ("refused", "failed", "C-1")}
    async with anyio.create_task_group() as group:
        group.start_soon(partial(controller._queue.run, controller._reconcile, workers=2))
        for key in (REFUSED, BUSY, FINE):
            controller._queue.add(key)
        await anyio.sleep(65)
        group.cancel_scope.cancel()
    assert (reconciler.passes.count("refused"), reconciler.passes.count("fine")) == (3, 1)
    assert reconciler.passes.count("busy") > 3, "with a back-off"
    counted = {rule: passes(rule) - earlier for rule, earlier in before.items()}
    assert counted == {"refused": 3, "failed": reconciler.passes.count("busy"), "C-1": 1}
