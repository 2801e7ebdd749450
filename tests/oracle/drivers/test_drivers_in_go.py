"""A DRA driver in Go, unmodified, on the cluster of ``kerf demo --keep``: it publishes, and prepares a pod's devices.

The example of Kubernetes is built from its module. It sends slices and reads claims in protobuf, and watches its slices
in protobuf, as every driver does that uses ``k8s.io/dynamic-resource-allocation``.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.wait import eventually
from tests.oracle.drivers.demo_cluster import NODE, RESOURCE, kept_cluster, list_devices
from tools.realcluster.api import Api, Document
from tools.realcluster.builds import build_example_driver

pytestmark = pytest.mark.oracle

DRIVER: Final = "gpu.example.com"
DEVICES: Final = 2
OBJECTS: Final[list[Document]] = [
    {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    },
    {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}},
    },
    *(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "containers": [{"name": "main", "image": "any", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
            },
        }
        for name in ("first", "second")
    ),
]


@contextmanager
def example_driver(program: Path, root: Path) -> Iterator[None]:
    node = root / NODE
    options = {
        "--node-name": NODE,
        "--driver-name": DRIVER,
        "--kubeconfig": root / "kubeconfig",
        "--cdi-root": node / "cdi",
        "--num-devices": DEVICES,
        "--kubelet-registrar-directory-path": node / "kubelet/plugins_registry",
        "--kubelet-plugins-directory-path": node / "kubelet/plugins",
        "--v": 8,  # with the headers of answers
    }
    with (root / "example.log").open("w") as log:
        command = [str(program), *(f"{option}={value}" for option, value in options.items())]
        with subprocess.Popen(command, stdout=log, stderr=log) as driver:
            try:
                yield
            finally:
                driver.terminate()


async def test_a_driver_in_go_publishes_and_prepares_on_the_demos_cluster_and_leaves_nothing() -> None:
    program = build_example_driver()
    with kept_cluster() as root, example_driver(program, root):
        async with Api(root / "kubeconfig") as api:

            async def published() -> Sequence[str]:
                return await list_devices(api, DRIVER)

            async def running() -> bool:
                pods = [await api.get("v1", "Pod", name, "default") for name in ("first", "second")]
                return {pod["status"].get("phase") for pod in pods} == {"Running"}

            assert await eventually("its devices are published", published) == ["gpu-0", "gpu-1"]
            for document in OBJECTS:
                await api.apply(document)
            await eventually("both pods run", running)
            logs = [
                (await api.request("GET", f"/api/v1/namespaces/default/pods/{name}/log"))["message"]
                for name in ("first", "second")
            ]
            assert {"GPU_DEVICE_0=gpu-0" in log for log in logs} == {True, False}, "each has a device of its own"
            for name in ("first", "second"):
                await api.delete("v1", "Pod", name, "default")

            async def gone() -> bool:
                files = {file.name for file in (root / NODE / "cdi").iterdir()}
                return [name for name in files if DRIVER in name] == [f"k8s.{DRIVER}-gpu_common.yaml"]

            await eventually("its CDI files are gone", gone)
        log = (root / "example.log").read_text()
        assert "Content-Type: application/vnd.kubernetes.protobuf\n" in log
        assert "Content-Type: application/vnd.kubernetes.protobuf;stream=watch\n" in log
