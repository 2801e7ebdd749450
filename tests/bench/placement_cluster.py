"""The loss system on real clusters of several nodes: kube-scheduler chooses the node, Kerf's order the place there.

The nodes have no kubelet and the cards are simulated; scheduler, controllers and API server are real. No real time
passes: the events of a loss system (``tests/partitions/loss_system.py``) come one after the other, and each waits until
the one before is over. An arrival is a pod with a claim for one profile. If the scheduler says that it is
unschedulable, and by the geometry it fits nowhere, it is lost. After each change the node's devices are compiled and
published as a plugin does it, without the plugin's pauses. Kerf's controller and plugin do not run.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from heapq import heappop, heappush
from random import Random
from statistics import mean
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskGroup

from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.devices import Pool
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.slice_publisher import PublishSettings
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.publish_order import PublishOrder, publish_order
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.runtime.notifier import Notifier
from tests.bench.cluster_wait import PATIENCE_S
from tests.bench.many_nodes import node_owner
from tests.bench.measurement import say
from tests.bench.node_choice import (
    LOAD,
    MIXES,
    Candidate,
    Choice,
    Nodes,
    OnNodes,
    at_random,
    by_name,
    by_publish_order,
    least_allocated,
    most_allocated,
)
from tests.e2e import pods
from tests.fakes.cluster_states import card
from tests.kube.awaited_publisher import AwaitedPublisher
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Accepted, Request
from tools.realcluster import requirements
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.versions import NEWEST

CARDS: Final = 8
"""Of all nodes of a variant together: so all variants get the same requests."""
MODELED: Final = 20
"""Runs of the model, whose ties are broken at random."""
REQUESTS: Final = 600
WARM_UP: Final = 100
SEED: Final = 0
SPACE: Final = "default"
CLASS: Final = "kerf-gpu"
PACKING: Final = "packing"
PROFILES: Final[Sequence[Document]] = (
    {"schedulerName": "default-scheduler"},
    {
        "schedulerName": PACKING,
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "MostAllocated",
                        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
                    }
                },
            }
        ],
    },
)
"""Of the scheduler: as it comes, and with another score for nodes."""
MARGIN_S: Final = 0.02
"""For the scheduler to see what this bench's own watches have shown. What it misses all the same is counted."""
CPU_MEMORY: Final = 4
"""The Gi of memory that pods request with each CPU: a node has 64 CPUs and 256 Gi."""


class Variant(NamedTuple):
    """One set of nodes, what they publish, and how kube-scheduler scores them."""

    name: str
    nodes: Nodes
    ordered: bool = True
    """Devices are published in Kerf's order, anew after each change; else in the order of their names, once."""
    requests: bool = True
    """Pods request CPU and memory in proportion to memory slices; else none at all."""
    scheduler: str = "default-scheduler"
    """The scheduler profile, of ``PROFILES``."""
    like: Choice = least_allocated
    """The choice of the model that is nearest to kube-scheduler's."""
    cpus_per_slice: int = 1
    """The CPUs that pods request for each memory slice: never so many that CPU runs out before devices do."""

    @property
    def score(self) -> str:
        """How the scheduler scores nodes: by a scoring strategy, or not at all."""
        if not self.requests:
            return "none"
        return "MostAllocated" if self.scheduler == PACKING else "LeastAllocated"

    @property
    def node_names(self) -> Sequence[str]:
        return [f"{self.name}-{number}" for number in range(self.nodes.number)]


VARIANTS: Final = (
    Variant("one", Nodes(1, 8)),
    Variant("one-unordered", Nodes(1, 8), ordered=False),
    Variant("eight", Nodes(8, 1)),
    Variant("eight-unordered", Nodes(8, 1), ordered=False),
    Variant("eight-empty", Nodes(8, 1), requests=False, like=at_random),
    Variant("eight-packed", Nodes(8, 1), scheduler=PACKING, like=most_allocated),
    Variant("two", Nodes(2, 4)),
    Variant("two-unordered", Nodes(2, 4), ordered=False),
    Variant("two-empty", Nodes(2, 4), requests=False, like=at_random),
    Variant("two-packed", Nodes(2, 4), scheduler=PACKING, like=most_allocated),
)


class Run(NamedTuple):
    """A sequence of requests."""

    mix: str
    seed: int
    requests: int
    warm_up: int

    def arrivals(self) -> list[Request]:
        given = {"cards": CARDS, "seed": self.seed, "requests": self.requests}
        return list(loss_system.arrivals(mix=self.mix, load=LOAD, **given))

    def replay(self, policy: loss_system.Policy) -> Accepted:
        """Return the share of the run's requests that a policy accepts."""
        return loss_system.replay(policy, self.arrivals(), cards=CARDS, warm_up=self.warm_up)


RUNS: Final = [Run(mix, SEED, REQUESTS, WARM_UP) for mix in MIXES]


class Watched:
    """The pods and claims of the cluster, as watches show them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._objects: dict[tuple[str, str], Document] = {}
        self._change = Notifier()

    async def follow(self, api_version: str, kind: str) -> None:
        """Follow pods or claims until cancelled; a watch that the API server ends is begun again."""
        while True:
            listed = await self._api.request("GET", await self._api.path(api_version, kind))
            present = {(kind, each["metadata"]["name"]): each for each in listed["items"]}
            others = {key: value for key, value in self._objects.items() if key[0] != kind}
            self._objects = {**others, **present}
            self._change.notify()
            version = listed["metadata"]["resourceVersion"]
            async with self._api.watch(api_version, kind, resourceVersion=version) as events:
                async for event in events:
                    self._apply(kind, event)

    def _apply(self, kind: str, event: Document) -> None:
        key = kind, event["object"]["metadata"].get("name", "")
        if event["type"] == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = event["object"]
        self._change.notify()

    def get(self, kind: str, name: str) -> Document:
        """Return the object, empty when there is none."""
        return self._objects.get((kind, name), {})

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Raises TimeoutError."""
        with anyio.fail_after(PATIENCE_S):
            while not condition():
                await self._change.wait()


class Node:
    """A node without a kubelet: what is taken of its cards, and what is published."""

    def __init__(self, name: str, cards: int, *, ordered: bool, publisher: AwaitedPublisher) -> None:
        self.name = name
        self.cards = [card(index, name) for index in range(cards)]
        self.taken: set[Partition] = set()
        by_uuid = {each.uuid: each for each in self.cards}
        self.partitions = {
            device_name(by_uuid[each.card_uuid], each): each for each in publish_order(self.cards, ()).partitions
        }
        self._ordered = ordered
        self._publisher = publisher
        self._place = PublishTarget(
            driver=DriverName(GPU.driver), node=name, layout=SliceLayout.SPLIT, vocabularies={GPU.name: GPU.vocabulary}
        )
        self._board = DeviceHealthTracker(driver=GPU.driver, now=time.time)
        self._inventory = DeviceSet()
        self._published: Sequence[Pool] = ()
        self._published_for: AbstractSet[Partition] | None = None

    async def publish(self) -> None:
        """Publish the node's devices, and wait until the API server has them."""
        if self.taken == self._published_for:
            return
        pools = self._pools()
        if pools != self._published:
            self._publisher.publish(pools)
            await self._publisher.wait_published()
            self._published = pools
        self._published_for = frozenset(self.taken)

    def _pools(self) -> Sequence[Pool]:
        if self._ordered:
            cards = {"simulated": self.cards}
            self._inventory = build_device_set(self._place, cards, self.taken, self._board, self._inventory)
            return self._inventory.pools
        if self._published:
            return self._published
        by_name = tuple(self.partitions[name] for name in sorted(self.partitions))
        order = PublishOrder(partitions=by_name, available=frozenset(by_name), losses={})
        name = pool_name(self.name, "gpu")
        return [
            compile_pool(
                name, self.name, self.cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order
            ).pool
        ]


class Decision(NamedTuple):
    """A request that was accepted, with the nodes on which it fitted."""

    candidates: Sequence[Candidate]
    chosen: Candidate
    expected: bool = True
    """It was bound at the first attempt, and got the first device of what its node had published."""
    seconds: float = 0.0
    """From the creation of its pod to its binding."""


class Course:
    """The outcome of the requests of one run, or of several."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, bool]] = []
        """Of each request: profile, and whether it was accepted."""
        self.decisions: list[Decision] = []
        self.late = 0
        """Requests that the scheduler took for unschedulable at first, though they fitted."""
        self.outdated = 0
        """Requests that got another device than the first of what was published."""

    def add(self, other: "Course") -> None:
        self.answers += other.answers
        self.decisions += other.decisions
        self.late += other.late
        self.outdated += other.outdated

    def accepted(self, warm_up: int) -> Accepted:
        counted = self.answers[warm_up:]
        given = [MEMORY_SLICES[profile] for profile, accepted in counted if accepted]
        asked = [MEMORY_SLICES[profile] for profile, _ in counted]
        return Accepted(100 * len(given) / len(counted), 100 * sum(given) / sum(asked))

    def shares(self) -> Sequence["Share"]:
        """Of the decisions between nodes that do not all hold the same: for the least allocated, and for the most."""
        real = [each for each in self.decisions if len({one.held for one in each.candidates}) > 1]
        return [Share.of(real, [_extreme(each.candidates, pick) for each in real]) for pick in (min, max)]


class Share(NamedTuple):
    """How many decisions were for a kind of node, in percent."""

    counted: float
    by_chance: float
    """The same, were each decision made at random."""

    @classmethod
    def of(cls, decisions: Sequence[Decision], best: Sequence[Sequence[Candidate]]) -> "Share":
        """``best``: which nodes are of the kind, for each decision."""
        pairs = list(zip(decisions, best, strict=True))
        return cls(
            100 * _mean(each.chosen in nodes for each, nodes in pairs),
            100 * _mean(len(nodes) / len(each.candidates) for each, nodes in pairs),
        )

    def __str__(self) -> str:
        return f"{self.counted:.0f} ({self.by_chance:.0f})"


def _extreme(candidates: Sequence[Candidate], pick: Callable[[Iterable[int]], int]) -> Sequence[Candidate]:
    held = pick(each.held for each in candidates)
    return [each for each in candidates if each.held == held]


def _mean(values: Iterable[float]) -> float:
    """Return the mean, 0 of no values."""
    known = list(values)
    return mean(known) if known else 0.0


class System:
    """One variant in the cluster, beside others: no pod may go to others' nodes."""

    def __init__(self, api: Api, watched: Watched, variant: Variant, nodes: Sequence[Node]) -> None:
        self._api = api
        self._watched = watched
        self._variant = variant
        self._nodes = nodes
        order = by_publish_order if variant.ordered else by_name
        self._find_fitting = OnNodes(variant.nodes.cards, order, variant.like, Random(0)).find_fitting
        self._number = 0

    async def play(self, requests: Iterable[Request]) -> Course:
        """Play one request after the other, from empty cards to empty cards."""
        course = Course()
        ends: list[tuple[float, str, Node, Partition]] = []
        for request in requests:
            due = []
            while ends and ends[0][0] <= request.at:
                due.append(heappop(ends))
            await self._depart(due)
            for node in self._nodes:
                await node.publish()
            await anyio.sleep(MARGIN_S)
            name = f"{self._variant.name}-{self._number}"
            self._number += 1
            found = await self._arrive(name, request.profile, course)
            course.answers.append((request.profile, found is not None))
            if found is not None:
                heappush(ends, (request.until, name, *found))
        await self._depart(ends)
        return course

    async def _arrive(self, name: str, profile: str, course: Course) -> tuple[Node, Partition] | None:
        """Return the node that the scheduler chooses; None: the request is lost, and its pod deleted."""
        cards = [each for node in self._nodes for each in node.cards]
        taken = {each for node in self._nodes for each in node.taken}
        fitting = {each.number: (each, place) for each, place in self._find_fitting(cards, taken, profile).items()}
        await self._api.create(claim_of(name, profile))
        began = time.perf_counter()
        await self._api.create(_pod(name, MEMORY_SLICES[profile], self._variant))
        await self._watched.wait(lambda: self._is_bound(name) or self._is_unschedulable(name))
        late = not self._is_bound(name)
        if late:
            if not fitting:
                await self._remove(name)
                return None
            await self._watched.wait(lambda: self._is_bound(name))
        seconds = time.perf_counter() - began
        await self._watched.wait(lambda: bool(self._result(name)))
        number = self._variant.node_names.index(self._watched.get("Pod", name)["spec"]["nodeName"])
        node = self._nodes[number]
        partition = node.partitions[self._result(name)[0]["device"]]
        assert not any(partition.overlaps(other) for other in node.taken), f"{name} got what is taken: {partition}"
        chosen, place = fitting[number]
        course.late += late
        course.outdated += partition != place
        candidates = [each for each, _ in fitting.values()]
        course.decisions.append(Decision(candidates, chosen, partition == place and not late, seconds))
        node.taken.add(partition)
        return node, partition

    async def _depart(self, ended: Iterable[tuple[float, str, Node, Partition]]) -> None:
        async with anyio.create_task_group() as group:
            for _, name, node, partition in ended:
                node.taken.discard(partition)
                group.start_soon(self._remove, name)

    async def _remove(self, name: str) -> None:
        """Delete pod and claim, and wait until both are gone."""
        await self._api.delete("v1", "Pod", name, SPACE, grace_s=0)
        await self._api.delete(pods.RESOURCE, "ResourceClaim", name, SPACE)
        await self._watched.wait(
            lambda: not self._watched.get("Pod", name) and not self._watched.get("ResourceClaim", name)
        )

    def _is_bound(self, name: str) -> bool:
        return bool(self._watched.get("Pod", name).get("spec", {}).get("nodeName"))

    def _is_unschedulable(self, name: str) -> bool:
        conditions = self._watched.get("Pod", name).get("status", {}).get("conditions", ())
        return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)

    def _result(self, name: str) -> Sequence[Document]:
        allocation: Document = self._watched.get("ResourceClaim", name).get("status", {}).get("allocation", {})
        results: Sequence[Document] = allocation.get("devices", {}).get("results", ())
        return results


def claim_of(name: str, profile: str) -> Document:
    """Return a claim for one partition of a profile."""
    expression = f'device.attributes["{GPU.driver}"].profile == "{profile}"'
    request = pods.exactly("gpu", CLASS, selectors=[{"cel": {"expression": expression}}])
    return _in_space(pods.claim(name, pods.devices(request)))


def _pod(name: str, memory_slices: int, variant: Variant) -> Document:
    cpus = variant.cpus_per_slice * memory_slices
    limits = {"cpu": f"{cpus}", "memory": f"{CPU_MEMORY * cpus}Gi"}
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(variant.node_names)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return _in_space(
        pods.pod(
            name,
            {"gpu": pods.by_name(name)},
            limits=limits if variant.requests else None,
            schedulerName=variant.scheduler,
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        )
    )


def _in_space(document: Document) -> Document:
    document["metadata"]["namespace"] = SPACE
    return document


async def play(variants: Sequence[Variant], runs: Sequence[Run]) -> dict[Variant, list[Course]]:
    """Every run in every variant, on one cluster; variants side by side."""
    requirements.ensure()
    names = [name for variant in variants for name in variant.node_names]
    courses: dict[Variant, list[Course]] = {variant: [] for variant in variants}
    async with running(NEWEST, nodes=(), bare_nodes=names) as cluster, Api(cluster.kubeconfig) as api:
        await cluster.configure_scheduler(PROFILES)
        async with watched_nodes(cluster, api, variants) as (watched, nodes), anyio.create_task_group() as playing:
            for variant in variants:
                system = System(api, watched, variant, nodes[variant])
                playing.start_soon(_play, system, variant, runs, courses[variant])
    return courses


@asynccontextmanager
async def watched_nodes(
    cluster: Cluster, api: Api, variants: Sequence[Variant]
) -> AsyncIterator[tuple[Watched, Mapping[Variant, Sequence[Node]]]]:
    """Create the DeviceClass, follow pods and claims, and publish the nodes of ``variants`` while the context lasts."""
    class_ = {"selectors": [{"cel": {"expression": f'device.driver == "{GPU.driver}"'}}]}
    await api.create({"apiVersion": pods.RESOURCE, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": class_})
    watched = Watched(api)
    async with AsyncExitStack() as stack, anyio.create_task_group() as group:
        client = await stack.enter_async_context(Client(await load_access(cluster.kubeconfig), user_agent="bench"))
        group.start_soon(watched.follow, "v1", "Pod")
        group.start_soon(watched.follow, pods.RESOURCE, "ResourceClaim")
        nodes = {
            variant: [await _start(api, client, group, variant, name) for name in variant.node_names]
            for variant in variants
        }
        yield watched, nodes
        group.cancel_scope.cancel()


async def _start(api: Api, client: Client, group: TaskGroup, variant: Variant, name: str) -> Node:
    document = {**await api.get("v1", "Node", name), "apiVersion": "v1", "kind": "Node"}
    publisher = AwaitedPublisher(
        client,
        KINDS,
        driver=GPU.driver,
        node_name=name,
        owner=node_owner(document),
        settings=PublishSettings(min_interval_s=0),
        on_problem=_fail,
    )
    group.start_soon(publisher.run)
    return Node(name, variant.nodes.cards, ordered=variant.ordered, publisher=publisher)


async def _play(system: System, variant: Variant, runs: Sequence[Run], courses: list[Course]) -> None:
    for run in runs:
        course = await system.play(run.arrivals())
        courses.append(course)
        say(f"{variant.name}, {run.mix}, seed {run.seed}: {_text(course.accepted(run.warm_up))}")


def _fail(problem: str) -> None:
    raise RuntimeError(problem)


HEADER: Final = (
    "WHAT",
    "DEVICES",
    "NODE SCORE",
    "KUBE-SCHEDULER",
    "MODEL",
    "FIRST FIT",
    "KEEP",
    "LEAST ALLOCATED",
    "MOST ALLOCATED",
    "LATE",
    "OUTDATED",
)


def rows(courses: Mapping[Variant, Sequence[Course]], runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """For each mix and variant; means of all its runs."""
    for mix in dict.fromkeys(run.mix for run in runs):
        for variant, played in courses.items():
            of_mix = [(run, course) for run, course in zip(runs, played, strict=True) if run.mix == mix]
            yield _row(variant, of_mix)


def _row(variant: Variant, played: Sequence[tuple[Run, Course]]) -> tuple[str, ...]:
    order = by_publish_order if variant.ordered else by_name
    figures = [
        [course.accepted(run.warm_up) for run, course in played],
        [
            run.replay(OnNodes(variant.nodes.cards, order, variant.like, Random(number)))
            for run, _ in played
            for number in range(MODELED)
        ],
        [run.replay(loss_system.first_fit) for run, _ in played],
        [run.replay(loss_system.published_order) for run, _ in played],
    ]
    total = Course()
    for _, course in played:
        total.add(course)
    counts = (total.late, total.outdated)
    return (
        f"{variant.nodes}, {played[0][0].mix}, load {LOAD}",
        "Kerf's order" if variant.ordered else "by name",
        variant.score,
        *(_text(Accepted(_mean(one.requests for one in each), _mean(one.slices for one in each))) for each in figures),
        *(map(str, total.shares()) if variant.nodes.number > 1 else ("", "")),
        *map(str, counts),
    )


def _text(accepted: Accepted) -> str:
    return f"{accepted.requests:.1f} ({accepted.slices:.1f})"
