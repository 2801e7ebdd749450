"""NVIDIA's DRA driver, unmodified, on the cluster of ``kerf demo --keep``: it publishes, and prepares pods' partitions.

Its hardware is a stand-in machine with two H100, the first of them in MIG mode.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.e2e.wait import eventually
from tests.oracle.drivers.demo_cluster import NODE, RESOURCE, kept_cluster, list_devices
from tests.oracle.nvidia_driver.drivers import NVIDIA, make_node, nvidia_driver
from tools.realcluster.api import Api, Document
from tools.realcluster.builds import build_nvidia_driver

pytestmark = pytest.mark.oracle

DEVICES: Final = 52
"""26 of each card: itself, and its partitions at each place."""
PROFILES: Final = {"first": "1g.10gb", "second": "3g.40gb"}


def make_objects() -> Sequence[Document]:
    """A class of partitions, and a claim template and a pod for each profile."""
    device = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}']"
    objects: list[Document] = [
        {
            "apiVersion": RESOURCE,
            "kind": "DeviceClass",
            "metadata": {"name": "mig.nvidia.com"},
            "spec": {"selectors": [{"cel": {"expression": f"{device}.type == 'mig'"}}]},
        }
    ]
    for name, profile in PROFILES.items():
        selector = {"cel": {"expression": f"device.attributes['{NVIDIA}'].profile == '{profile}'"}}
        exactly = {"deviceClassName": "mig.nvidia.com", "selectors": [selector]}
        metadata = {"name": name, "namespace": "default"}
        container = {"name": "main", "image": "any", "resources": {"claims": [{"name": "mig"}]}}
        claims = [{"name": "mig", "resourceClaimTemplateName": name}]
        template = {"spec": {"devices": {"requests": [{"name": "mig", "exactly": exactly}]}}}
        objects += [
            {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": template},
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"containers": [container], "resourceClaims": claims},
            },
        ]
    return objects


async def test_nvidias_driver_publishes_and_prepares_on_the_demos_cluster_and_leaves_nothing() -> None:
    program = build_nvidia_driver()
    with kept_cluster() as root:
        driver = nvidia_driver(program, make_node(root / NODE, "h100-80gb-sxm"), root / "kubeconfig")
        process = driver.launch()
        try:
            async with Api(root / "kubeconfig") as api:

                async def all_published() -> bool:
                    return len(await list_devices(api, NVIDIA)) == DEVICES

                async def running() -> bool:
                    pods = [await api.get("v1", "Pod", name, "default") for name in PROFILES]
                    return {pod["status"].get("phase") for pod in pods} == {"Running"}

                await eventually("its devices are published", all_published)
                for document in make_objects():
                    await api.apply(document)
                await eventually("both pods run", running)
                made = {one.profile for one in driver.machine.list_instances()}
                assert made == {*PROFILES.values()}
                for name in PROFILES:
                    log = await api.request("GET", f"/api/v1/namespaces/default/pods/{name}/log")
                    assert "/dev/nvidia-caps/nvidia-cap" in log["message"]
                    await api.delete("v1", "Pod", name, "default")

                async def gone() -> bool:
                    files = [file for file in driver.cdi_dir.iterdir() if NVIDIA in file.name]
                    return not driver.machine.list_instances() and not files

                await eventually("its partitions and CDI files are gone", gone)
        finally:
            process.kill()
            process.wait()
