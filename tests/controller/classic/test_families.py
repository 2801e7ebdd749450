"""One controller serves the drivers of both of Kerf's own families."""

from api.model.classic import ClassicClaim
from driver.controller.classic.state import FINALIZER
from driver.families.fpga import FPGA
from tests.controller.classic.cluster import ClassicCluster
from tests.controller.classic.hardware import DRIVER, fpga


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
    assert [claim.metadata.finalizers for claim in claims] == [(FINALIZER,), (FINALIZER,)]


def owner_of(claim: ClassicClaim) -> tuple[str, str]:
    assert claim.status.allocation is not None
    [result] = claim.status.allocation.devices.results
    assert result.driver == claim.status.driver_name
    return result.driver, result.pool
