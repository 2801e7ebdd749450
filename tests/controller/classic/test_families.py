"""One controller serves the drivers of both of Kerf's own families, each with its claims and inventories only."""

from api.model.classic import ClassicClaim
from api.model.names import ObjectRef
from driver.controller.classic.event_handlers import ClaimEventHandlers, ReconcileKey
from driver.controller.classic.state import ClusterView
from driver.families.fpga import FPGA
from driver.kube.store import ObjectChange
from tests.controller.classic.cluster import ClassicCluster
from tests.controller.classic.cluster_builder import ClusterBuilder
from tests.controller.classic.hardware import DRIVER, fpga, gpu, inventory


async def test_a_pod_gets_a_gpu_and_an_fpga_from_two_drivers_of_one_controller(cluster: ClassicCluster) -> None:
    await cluster.tell(fpga("n1", 0, "quad"), driver=FPGA.driver)
    await cluster.parameters("fpga", {"function": "aes-gcm"}, "FpgaClassParameters")
    await cluster.class_("fpga", driver=FPGA.driver, kind="FpgaClassParameters")
    await cluster.claim("one", allocationMode="WaitForFirstConsumer")
    await cluster.claim("other", "fpga", allocationMode="WaitForFirstConsumer")
    await cluster.negotiate("one", "other")
    assert await cluster.has("one") == ["gpu-0-1g-10gb-at-6"]
    assert await cluster.has("other") == ["fpga-0-aes-gcm-at-0"]
    claims = [await cluster.read(name) for name in ("one", "other")]
    assert [owner_of(claim) for claim in claims] == [(DRIVER, "n1/gpu"), (FPGA.driver, "n1/fpga")]
    assert [claim.metadata.finalizers for claim in claims] == [
        ("gpu.kerf.dev/deletion-protection",),
        ("fpga.kerf.dev/deletion-protection",),
    ]


def owner_of(claim: ClassicClaim) -> tuple[str, str]:
    assert claim.status.allocation is not None
    [result] = claim.status.allocation.devices.results
    assert result.driver == claim.status.driver_name
    return result.driver, result.pool


def test_a_driver_knows_the_inventories_of_its_own_only() -> None:
    builder = ClusterBuilder()
    builder.node("n1", gpu("n1", 0))
    other = inventory("n1", fpga("n1", 0, "quad"), driver=FPGA.driver)
    builder.put_inventory(other)
    model = builder.view.node_model("n1")
    assert model is not None
    assert [card.name for card in model.cards] == ["gpu-0"]
    builder.stores.inventories.remove(other.ref)
    builder.view.on_inventory(ObjectChange(other.ref, other, None))
    assert builder.view.problem_of("n1") is None


def test_a_changed_inventory_wakes_the_claims_of_every_driver_on_its_node() -> None:
    keys: list[ReconcileKey] = []

    class Queue:
        def add(self, key: ReconcileKey, *, after_s: float = 0.0) -> None:
            keys.append(key)

    builder = ClusterBuilder()
    fpgas = ClusterView(builder.stores, family=FPGA, monotonic=builder.clock)
    handlers = ClaimEventHandlers(Queue(), [builder.view, fpgas])
    builder.claim("waiting", immediate=True)
    new = inventory("n1", fpga("n1", 0, "quad"), driver=FPGA.driver)
    handlers.on_inventory(ObjectChange(new.ref, None, new))
    assert ReconcileKey("claim", ObjectRef("ns", "waiting")) in keys
    assert fpgas.node_model("n1") is not None
    assert builder.view.node_model("n1") is None
