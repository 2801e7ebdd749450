"""The scenarios of NVIDIA's suites for its DRA driver on a real cluster: first with that driver, then with Kerf.

The suites are those for bats of dra-driver-nvidia-gpu v0.5.0: basic, dynamic MIG, robustness, consumable shares,
extended resource. NVIDIA's unmodified driver judges the stand-in for its hardware; then Kerf runs on the same cards.
"""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import pytest

from tests.e2e import pods
from tests.e2e.compared_drivers import EXTENDED_RESOURCE, ComparedDriver, VisibleDevices, kerf_on, nvidia_on
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Namespace
from tests.e2e.node import NodeView
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.environment import chosen_version
from tools.realcluster.versions import NEWEST

pytestmark = pytest.mark.skipif(chosen_version() is not NEWEST, reason="NVIDIA's driver is compared on one release")

ROUNDS: Final = 5
"""Of two claims: as many claims as NVIDIA's suite lets come and go, in half the time."""
DRIVERS: Final = {"nvidia": nvidia_on, "kerf": kerf_on}
PCI: Final = frozenset(f"resource.kubernetes.io/{name}" for name in ("numaNode", "pciBusID", "pcieRoot"))
COMMON: Final = PCI | {
    "architecture",
    "cudaComputeCapability",
    "cudaDriverVersion",
    "driverVersion",
    "productName",
}
"""The attributes of cards and partitions that NVIDIA's suites list, and that both drivers publish."""
OTHER_NODES: Final = "slices of other nodes, with the token of one node's plugin"
SMALL: Final = 'device.capacity["DRIVER"].multiprocessors.isLessThan(quantity("30"))'
LARGE: Final = 'device.capacity["DRIVER"].multiprocessors.isGreaterThan(quantity("50"))'
SOME: Final = (
    'device.capacity["DRIVER"].multiprocessors.isGreaterThan(quantity("10"))'
    ' && device.capacity["DRIVER"].memory.isGreaterThan(quantity("10Gi"))'
)


@pytest.fixture(scope="module", params=DRIVERS)
async def driver(cluster: Cluster, api: Api, request: pytest.FixtureRequest) -> AsyncIterator[ComparedDriver]:
    """The driver on the node: NVIDIA's, and after it Kerf."""
    async with DRIVERS[request.param](cluster, api, NODE) as driver:
        yield driver


@pytest.fixture(scope="module")
def nodes(driver: ComparedDriver) -> Mapping[str, NodeView]:
    """The node, as the driver under test has it."""
    return {NODE: driver.node}


async def card_template(namespace: Namespace, driver: ComparedDriver) -> None:
    """Create the template ``card``, of claims on a whole card."""
    await namespace.template("card", pods.exactly("gpu", driver.names.card_class))


@pytest.mark.usefixtures("idle_order")
async def test_cards_are_published_with_the_attributes_by_which_claims_select_them(
    api: Api, driver: ComparedDriver
) -> None:
    cards = await driver.published(api, driver.names.card)
    assert len(cards) == len(driver.host_cards())
    for card in cards:
        assert {*COMMON, "uuid", driver.names.kind} <= {*card["attributes"]}


@pytest.mark.usefixtures("idle_order")
async def test_partitions_are_published_with_their_profile_and_the_uuid_of_their_card(
    api: Api, driver: ComparedDriver
) -> None:
    uuid = driver.expect("the UUID of a partition's card", nvidia="parentUUID", kerf="uuid")
    cards = {card["attributes"]["uuid"]["string"] for card in await driver.published(api, driver.names.card)}
    partitions = await driver.published(api, driver.names.partition)
    assert {one["attributes"][uuid]["string"] for one in partitions} == cards
    for partition in partitions:
        assert {*COMMON, "profile", driver.names.kind} <= {*partition["attributes"]}


@pytest.mark.usefixtures("idle_order")
async def test_the_token_of_a_nodes_plugin_writes_slices_of_that_node_alone(driver: ComparedDriver) -> None:
    """No scenario of a suite: it is what an admission policy in NVIDIA's chart is for."""
    async with Api(driver.kubeconfig) as plugin:
        await plugin.create(_make_slice(driver, NODE), dryRun="All")
        if driver.expect(OTHER_NODES, nvidia=True, kerf=False):
            await plugin.create(_make_slice(driver, "another"), dryRun="All")
            return
        with pytest.raises(StatusError, match="may not write a ResourceSlice of node"):
            await plugin.create(_make_slice(driver, "another"), dryRun="All")


def _make_slice(driver: ComparedDriver, node: str) -> Document:
    pool = {"name": f"{node}/more", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver.names.driver, "nodeName": node, "pool": pool, "devices": [{"name": "more"}]}
    return {"apiVersion": pods.RESOURCE, "kind": "ResourceSlice", "metadata": {"name": "more"}, "spec": spec}


async def test_two_pods_get_a_card_each_and_metrics_count_them(namespace: Namespace, driver: ComparedDriver) -> None:
    await card_template(namespace, driver)
    await namespace.create_pods("card", "p", "q")
    seen = [driver.visible((await namespace.wait_running(name)).main) for name in ("p", "q")]
    assert sorted(card for one in seen for card in one.cards) == [0, 1]
    assert {len(one.cards) for one in seen} == {1}
    assert await driver.prepared_devices() == 2


async def test_pods_and_containers_with_one_claim_see_one_card(namespace: Namespace, driver: ComparedDriver) -> None:
    await namespace.claim("card", pods.exactly("gpu", driver.names.card_class))
    for name in ("p", "q"):
        await namespace.apply(pods.pod(name, {"gpu": pods.by_name("card")}, containers=("a", "b")))
    running = [await namespace.wait_running(name) for name in ("p", "q")]
    (seen,) = {driver.visible(container) for pod in running for container in pod.containers.values()}
    assert len(seen.cards) == 1


async def test_a_pod_with_two_claims_sees_two_cards(namespace: Namespace, driver: ComparedDriver) -> None:
    await card_template(namespace, driver)
    await namespace.apply(pods.pod("p", {name: pods.by_template("card") for name in ("a", "b")}))
    assert driver.visible((await namespace.wait_running("p")).main).cards == {0, 1}


async def test_a_pod_gets_the_card_that_its_selector_matches_and_waits_for_one_that_nothing_has(
    namespace: Namespace, driver: ComparedDriver
) -> None:
    blackwell = driver.expect("the name of the architecture", nvidia="Blackwell", kerf="blackwell")
    expressions = {"match": f"architecture == '{blackwell}'", "none": "productName == 'no such product'"}
    for name, expression in expressions.items():
        selector = driver.selector(f"device.attributes['DRIVER'].{expression}")
        await namespace.template(name, pods.exactly("gpu", driver.names.card_class, **selector))
        await namespace.create_pods(name, name)
    assert driver.visible((await namespace.wait_running("match")).main).cards
    await namespace.wait_event("none", "FailedScheduling")


async def test_ten_claims_that_come_and_go_leave_nothing(namespace: Namespace, driver: ComparedDriver) -> None:
    await card_template(namespace, driver)
    for _ in range(ROUNDS):
        await namespace.create_pods("card", "p", "q")
        for name in ("p", "q"):
            await namespace.wait_running(name)
        assert all(claim["status"]["allocation"]["devices"]["results"] for claim in await namespace.claims())
        for name in ("p", "q"):
            await namespace.api.delete("v1", "Pod", name, namespace.name)
        for name in ("p", "q"):
            await namespace.wait_gone("v1", "Pod", name)
        await eventually("their claims are gone", partial(_has_no_claim, namespace))
    await namespace.wait_clean()
    assert await driver.prepared_devices() == 0


async def _has_no_claim(namespace: Namespace) -> bool:
    return not await namespace.claims()


async def test_a_pod_gets_a_partition_by_size_that_is_made_for_it_and_goes_with_it(
    namespace: Namespace, driver: ComparedDriver
) -> None:
    request = pods.exactly("mig", driver.names.partition_class, **driver.selector(SOME))
    await namespace.template("partition", request)
    await namespace.create_pods("partition", "p")
    seen = driver.visible((await namespace.wait_running("p")).main)
    (made,) = driver.machine.list_instances()
    assert seen == VisibleDevices(frozenset({made.card}), frozenset({made.uuid}))
    await namespace.delete_pod("p")
    await namespace.wait_clean()
    mode = driver.expect("MIG mode after the last partition of a card", nvidia=False, kerf=True)
    assert driver.mig_modes()[made.card] == mode


async def test_two_containers_see_a_partition_each_of_one_claim(namespace: Namespace, driver: ComparedDriver) -> None:
    partition = driver.names.partition_class
    requests = {"small": pods.exactly("small", partition, **driver.selector(SMALL))}
    requests["large"] = pods.exactly("large", partition, **driver.selector(LARGE))
    await namespace.template("pair", *requests.values())
    pod = pods.pod("p", {"mig": pods.by_template("pair")}, containers=tuple(requests))
    for container in pod["spec"]["containers"]:
        container["resources"] = {"claims": [{"name": "mig", "request": container["name"]}]}
    await namespace.apply(pod)
    seen = {name: driver.visible(one) for name, one in (await namespace.wait_running("p")).containers.items()}
    made = {one.uuid for one in driver.machine.list_instances()}
    assert len(made) == 2
    assert all(len(one.partitions) == 1 for one in seen.values())
    assert seen["small"].partitions | seen["large"].partitions == made
    await namespace.delete_pod("p")
    assert driver.machine.list_instances() == []


async def test_containers_share_a_card_by_time_slices_of_the_length_in_their_claim(
    namespace: Namespace, driver: ComparedDriver
) -> None:
    await namespace.claim("card", pods.exactly("gpu", driver.names.card_class), config=[driver.time_slices()])
    await namespace.apply(pods.pod("p", {"gpu": pods.by_name("card")}, containers=("a", "b")))
    (seen,) = {driver.visible(one) for one in (await namespace.wait_running("p")).containers.values()}
    assert len(seen.cards) == 1
    assert [*driver.machine.time_slices.values()].count(1) == 1, "1 is short"


async def test_a_limit_of_an_extended_resource_gets_a_card_by_a_claim_that_the_scheduler_makes(
    namespace: Namespace, driver: ComparedDriver
) -> None:
    await namespace.apply(pods.pod("p", limits={EXTENDED_RESOURCE: "1"}))
    running = await namespace.wait_running("p")
    assert len(driver.visible(running.main).cards) == 1
    made = running.pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = await namespace.api.get(pods.RESOURCE, "ResourceClaim", made, namespace.name)
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert {one["driver"] for one in claim["status"]["allocation"]["devices"]["results"]} == {driver.names.driver}


@pytest.mark.parametrize("unit", ["memory", "shares"])
async def test_two_pods_share_a_card_by_amounts(namespace: Namespace, driver: ComparedDriver, unit: str) -> None:
    amount: Document = {"memory": "2Gi"}
    if unit == "shares":
        amount = driver.expect("shares of a card by count", nvidia={"shares": "1"}, kerf={"clients": "12"})
    async with driver.sharing(namespace.api, {"memory": "memory", "shares": "4"}[unit]):
        share = pods.exactly("gpu", driver.names.share_class, capacity={"requests": amount})
        await namespace.template("share", share)
        await namespace.create_pods("share", "p", "q")
        seen = [driver.visible((await namespace.wait_running(name)).main) for name in ("p", "q")]
        assert seen[0] == seen[1]
        assert len(seen[0].cards) == 1
        await namespace.delete_pods()


async def test_mps_in_a_claim_on_a_card_is_refused_where_the_driver_has_shares_instead(
    namespace: Namespace, driver: ComparedDriver
) -> None:
    async with driver.sharing(namespace.api, "4"):
        await namespace.claim("card", pods.exactly("gpu", driver.names.card_class), config=[driver.mps()])
        await namespace.apply(pods.pod("p", {"gpu": pods.by_name("card")}))
        if driver.expect("MPS in a claim on a card, while the driver has shares", nvidia=True, kerf=False):
            await namespace.wait_event("p", "FailedPrepareDynamicResources", "MPS sharing is not supported")
        else:
            environment = (await namespace.wait_running("p")).main.environment
            assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
        await namespace.delete_pods()
