"""Users ask for their own size: ``kerf claim``, the families' own DeviceClasses, and the plainest of all classes."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import anyio
import pytest
import yaml

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "a100-40gb"}, {"kind": "fpga", "shell": "quad"}], options={})


ApplyClaim: TypeAlias = Callable[..., Awaitable[str]]


@pytest.fixture
def apply_claim(namespace: Namespace, cluster: Cluster) -> ApplyClaim:
    """``kerf claim ARGUMENTS | kubectl apply -f -``, which returns the name of the object."""

    async def apply(*arguments: str) -> str:
        version = f"--api-version={cluster.version.resource_version}"
        printed = await anyio.run_process([sys.executable, "-m", "kerf_dra.driver.cli", "claim", *arguments, version])
        await anyio.run_process(cluster.kubectl("apply", "-n", namespace.name, "-f", "-"), input=printed.stdout)
        return str(yaml.safe_load(printed.stdout)["metadata"]["name"])

    return apply


@pytest.fixture(params=["gpu.kerf.dev", "fpga.kerf.dev"])
async def plain_class(request: pytest.FixtureRequest, api: Api) -> AsyncIterator[str]:
    """A user's own DeviceClass of the plainest form, for any device of one driver."""
    driver = str(request.param)
    name = f"plain-{driver}"
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    metadata = {"name": name}
    await api.apply(
        {"apiVersion": pods.RESOURCE, "kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": [selector]}}
    )
    yield name
    await api.delete(pods.RESOURCE, "DeviceClass", name)


async def test_a_size_of_ones_own_is_applied_and_its_pod_runs(namespace: Namespace, apply_claim: ApplyClaim) -> None:
    name = await apply_claim("gpu", "--memory", "18Gi")
    await namespace.create_pods(name, "p")
    (uuid,) = (await namespace.wait_running("p")).main.kerf_devices.values()
    assert uuid.startswith("MIG-")
    (result,) = await namespace.allocation_results("p")
    assert "-3g-20gb-" in result["device"], "the smallest with 18Gi"


async def test_two_of_a_size_on_one_card(namespace: Namespace, apply_claim: ApplyClaim) -> None:
    name = await apply_claim("gpu", "--profile", "2g.10gb", "--count", "2", "--same-card")
    await namespace.create_pods(name, "p")
    assert len((await namespace.wait_running("p")).main.kerf_devices) == 2
    first, second = await namespace.allocation_results("p")
    assert first["device"][: len("gpu-0")] == second["device"][: len("gpu-0")]


@pytest.mark.parametrize(("arguments", "function"), [(["--function", "zstd"], "zstd"), (["--slots", "2"], "")])
async def test_an_fpga_runs_the_function_that_is_asked_for_or_none(
    namespace: Namespace, apply_claim: ApplyClaim, arguments: list[str], function: str
) -> None:
    name = await apply_claim("fpga", *arguments)
    await namespace.create_pods(name, "p")
    told = (await namespace.wait_running("p")).main
    assert [*told.kerf_devices.values()] == [function]


@pytest.mark.parametrize("plain_class", ["gpu.kerf.dev"], indirect=True)
async def test_a_claim_on_any_device_that_gets_a_share_has_the_limit_of_a_share(
    namespace: Namespace, plain_class: str
) -> None:
    shares = await namespace.resource_class("shares", device="gpu", cut="Whole", allocation="Shared")
    await namespace.template("most", pods.exactly("gpu", shares, capacity={"requests": {"memory": "30Gi"}}))
    await namespace.create_pods("most", "first")
    ((device, _),) = (await namespace.wait_running("first")).main.kerf_devices.items()
    await namespace.template("any", pods.exactly("device", plain_class))
    await namespace.create_pods("any", "second")
    second = (await namespace.wait_running("second")).main
    assert [*second.kerf_devices] == [device], "nothing else of the card is free"
    assert second.environment[f"KERF_MEMORY_LIMIT_{device.upper().replace('-', '_')}"] == str(2**30)


async def test_every_claim_on_any_device_of_a_driver_runs_until_there_is_none_left(
    namespace: Namespace, plain_class: str
) -> None:
    """The plainest DeviceClass hands out slots without a function, and no device that only monitors; one more pod than
    there are units waits, and does not get what cannot be prepared.
    """
    family = plain_class.removeprefix("plain-").partition(".")[0]
    await namespace.resource_class("monitor", device=family, cut="Monitor")

    async def are_published() -> bool:
        return any(
            name.startswith(family) and name.endswith("-monitor") for name in await namespace.published_devices()
        )

    await eventually("monitor devices are published", are_published)
    await namespace.template("any", pods.exactly("device", plain_class))
    units = 7 if family == "gpu" else 4
    names = [f"p{number}" for number in range(units)]
    await namespace.create_pods("any", *names)
    for name in names:
        await namespace.wait_running(name)
    await namespace.create_pods("any", "late")
    await namespace.wait_event("late", "FailedScheduling", "cannot allocate all claims")
