"""Each decision of a real kube-scheduler beside that of the model of ``node_choice``, from the same state.

``python -m tests.bench.node_decisions`` replays arrivals and departures of the loss system on nodes without a kubelet
(``placement_cluster``), one node score after the other, and all layouts of nodes side by side. The scores are the
default, MostAllocated, the default for claims that the policy of ``deploy/graded-placement`` has rewritten, and the
default with the scheduler extender of Kerf's controller, which runs as one replica and has more time for its answers
than in a cluster (``extender_replica.TIMEOUT_S``). A decision equals the model's if

- the pod is bound to one of the nodes that are best by the model. The model treats nodes with equal scores as a set,
  because kube-scheduler takes any of them;
- it is bound at the first attempt, and gets the device that the model gives it there;
- or it is unschedulable, and by the model it fits on no node.

What the API server and the extender count meanwhile is divided by the number of pods of all layouts. A plugin waits
two seconds between two writes and this bench does not, so the writes of slices are the most that there can be.
"""

import argparse
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from statistics import mean, median
from typing import Final, NamedTuple

import anyio
import yaml

from kerf_dra.driver.cli.output import format_table
from kerf_dra.driver.controller.structured.class_compiler import PLACEMENT_LABEL
from kerf_dra.driver.controller.structured.placement.scheduler_extender import RequestOutcome
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.bench.measurement import Row, say
from tests.bench.node_choice import (
    LOAD,
    Candidate,
    FindBest,
    Nodes,
    with_best_grade,
    with_best_rank,
    with_least_held,
    with_most_held,
)
from tests.bench.placement_cluster import (
    CLASS,
    PACKING,
    PROFILES,
    Course,
    Decision,
    System,
    Variant,
    claim_of,
    watched_nodes,
)
from tests.controller.structured.placement.certificates import make_certificates
from tests.e2e import pods
from tests.e2e.extender_replica import extender, scheduler_entry
from tests.e2e.wait import eventually
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES
from tools.realcluster import requirements
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.kerf import DEPLOY, Kerf
from tools.realcluster.paths import free_port
from tools.realcluster.versions import NEWEST

NODES: Final = (Nodes(8, 1), Nodes(25, 4))
DECISIONS: Final = 300
"""For each node score and layout: on 25 nodes the first 200 pods fill empty cards."""
CARD_SLICES: Final = max(MEMORY_SLICES.values())
NODE_CPUS: Final = 64
"""Of a node without a kubelet (``add_bare_node``), with 4 GiB of memory for each, as pods request it."""
MIX: Final = "uniform"
SEED: Final = 0
_REQUESTS: Final = re.compile(r"^apiserver_request_total{(.*)} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_OF_INFORMERS: Final = frozenset({"LIST", "WATCH"})
"""Requests of a part that starts, or whose watch has ended, whatever pods do."""
_COUNTED: Final = frozenset({"pods", "resourceclaims", "resourceslices", "events"})
"""Resources of which pods are the cause; what is written as time passes, such as leases, does not count."""


class Layout(NamedTuple):
    """Equal nodes, and how much CPU and memory pods request there."""

    nodes: Nodes
    scarce: bool = False
    """A node whose cards are full has no CPU left; else most of it is left. What LeastAllocated and MostAllocated say
    of two nodes then differs much, or little."""

    @property
    def variant(self) -> Variant:
        cpus = NODE_CPUS // (CARD_SLICES * self.nodes.cards) if self.scarce else 1
        name = f"{'scarce' if self.scarce else 'plenty'}-{self.nodes.number}x{self.nodes.cards}"
        return Variant(name, self.nodes, cpus_per_slice=cpus)

    @property
    def cpus_of_slice(self) -> int:
        """The CPUs of a node for each of its memory slices, where pods request one for each."""
        return NODE_CPUS // (self.variant.cpus_per_slice * CARD_SLICES * self.nodes.cards)

    def __str__(self) -> str:
        return f"{self.nodes}, CPU {'scarce' if self.scarce else 'plentiful'}"


class NodeScore(NamedTuple):
    """A configuration of kube-scheduler, and the model of it."""

    name: str
    scheduler: str
    """The profile of the scheduler."""
    find_best: FindBest
    """The nodes that the scheduler may take, of those on which a pod fits."""
    extender: bool = False
    graded: bool = False
    """Claims get alternatives by the policy of graded placement."""


DEFAULT: Final = NodeScore("LeastAllocated", "default-scheduler", with_least_held)
SCORES: Final = (
    DEFAULT,
    NodeScore("MostAllocated", PACKING, with_most_held),
    NodeScore("graded", "default-scheduler", with_best_grade, graded=True),
    NodeScore("extender", "default-scheduler", with_best_rank, extender=True),
)


class ApiRequest(NamedTuple):
    """A kind of request to the API server."""

    resource: str
    """With its subresource: ``pods/binding``."""
    verb: str


class Comparison(NamedTuple):
    """The decisions of one node score on one layout."""

    layout: Layout
    score: NodeScore
    course: Course

    @property
    def compared(self) -> int:
        return len(self.course.answers)

    @property
    def equal(self) -> int:
        """How many decisions equal the model's; a pod is refused only if it fits nowhere by the model."""
        refused = self.compared - len(self.course.decisions)
        return refused + sum(self.is_equal(each) for each in self.course.decisions)

    def is_equal(self, decision: Decision) -> bool:
        return decision.expected and decision.chosen in self.find_best(decision)

    def find_best(self, decision: Decision) -> Sequence[Candidate]:
        return self.score.find_best(decision.candidates, self.layout.cpus_of_slice)

    @property
    def contested(self) -> Sequence[Decision]:
        """The decisions in which some node on which the pod fitted was not among the best."""
        decisions = self.course.decisions
        return [each for each in decisions if len(self.find_best(each)) < len(each.candidates)]

    @property
    def by_chance(self) -> float:
        """The share of ``contested`` that would equal the model's if nodes were drawn, in percent."""
        shares = [len(self.find_best(each)) / len(each.candidates) for each in self.contested]
        return 100 * mean(shares) if shares else 100.0

    @property
    def milliseconds(self) -> Sequence[float]:
        """From the creation of each pod that was bound to its binding."""
        return [1000 * each.seconds for each in self.course.decisions]


class Replay(NamedTuple):
    """The decisions of one node score on all layouts, and what was counted meanwhile."""

    comparisons: Sequence[Comparison]
    requests: Counter[ApiRequest]
    calls: Counter[RequestOutcome]
    """Of the extender."""

    def per_pod(self, count: int) -> str:
        return f"{count / sum(each.compared for each in self.comparisons):.2f}"


async def compare(layouts: Sequence[Layout], scores: Sequence[NodeScore], decisions: int) -> list[Replay]:
    """Replay ``decisions`` arrivals for each layout and node score on one cluster."""
    requirements.ensure()
    variants = {layout: layout.variant for layout in layouts}
    names = [name for variant in variants.values() for name in variant.node_names]
    replays: list[Replay] = []
    async with running(NEWEST, nodes=(), bare_nodes=names) as cluster, Api(cluster.kubeconfig) as api:
        await Kerf(cluster, api).install()
        async with watched_nodes(cluster, api, list(variants.values())) as (watched, nodes):
            for score in scores:
                systems = {
                    layout: System(api, watched, variant._replace(scheduler=score.scheduler), nodes[variant])
                    for layout, variant in variants.items()
                }
                async with _configured(cluster, api, score):
                    replays.append(await _replay(api, systems, score, decisions))
    return replays


@asynccontextmanager
async def _configured(cluster: Cluster, api: Api, score: NodeScore) -> AsyncIterator[None]:
    """Start the scheduler again, with the extender or without it, and enable graded placement where claims get it."""
    if not score.extender:
        await cluster.configure_scheduler(PROFILES)
        async with _graded_placement(api) if score.graded else nullcontext():
            yield
        return
    port, folder = free_port(), cluster.paths.root / "extender"
    certificates = make_certificates(folder)
    async with extender(cluster, certificates, port, folder):
        await cluster.configure_scheduler(PROFILES, [scheduler_entry(certificates, port)])
        yield


@asynccontextmanager
async def _graded_placement(api: Api) -> AsyncIterator[None]:
    """Apply the policy to claims of the DeviceClass while the context lasts."""
    documents = list(yaml.safe_load_all((DEPLOY / "graded-placement" / "policy.yaml").read_text()))
    for document in documents:
        await api.apply(document)
    await api.patch(pods.RESOURCE, "DeviceClass", CLASS, {"metadata": {"labels": {PLACEMENT_LABEL: "Packed"}}})

    async def is_in_force() -> bool:
        made = await api.create(claim_of("probe", "1g.10gb"), dryRun="All")
        return "firstAvailable" in made["spec"]["devices"]["requests"][0]

    await eventually("the policy is in force", is_in_force)
    yield
    await api.patch(pods.RESOURCE, "DeviceClass", CLASS, {"metadata": {"labels": {PLACEMENT_LABEL: None}}})
    for document in documents:
        await api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"])


async def _replay(api: Api, systems: Mapping[Layout, System], score: NodeScore, decisions: int) -> Replay:
    comparisons: list[Comparison] = []

    async def play(layout: Layout, system: System) -> None:
        offered = {"cards": layout.nodes.number * layout.nodes.cards, "seed": SEED, "requests": decisions}
        course = await system.play(loss_system.arrivals(mix=MIX, load=LOAD, **offered))
        comparisons.append(Comparison(layout, score, course))
        _report(comparisons[-1])

    requests, calls = await count_requests(api), count_calls()
    async with anyio.create_task_group() as group:
        for layout, system in systems.items():
            group.start_soon(play, layout, system)
    comparisons.sort(key=lambda each: list(systems).index(each.layout))
    return Replay(comparisons, await count_requests(api) - requests, count_calls() - calls)


def _report(found: Comparison) -> None:
    say(f"{found.layout}, {found.score.name}: {found.equal} of {found.compared} decisions as the model's")
    for each in found.course.decisions:
        if not found.is_equal(each):
            say(f"  {each.chosen} and not one of {found.find_best(each)}; expected: {each.expected}")


async def count_requests(api: Api) -> Counter[ApiRequest]:
    """Return what the API server has counted so far of the requests of which pods are the cause."""
    return parse_requests((await api.request("GET", "/metrics"))["message"])


def parse_requests(metrics: str) -> Counter[ApiRequest]:
    """Return the requests of which pods are the cause, from the API server's metrics."""
    requests = Counter[ApiRequest]()
    for text, value in _REQUESTS.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if labels["verb"] not in _OF_INFORMERS and labels["resource"] in _COUNTED:
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            requests[ApiRequest(resource, labels["verb"])] += round(float(value))
    return requests


def count_calls() -> Counter[RequestOutcome]:
    """Return the requests that the extender in this process has answered so far."""
    name = "kerf_placement_requests_total"
    values = {each: REGISTRY.get_sample_value(name, {"outcome": each.value}) for each in RequestOutcome}
    return Counter({outcome: round(value or 0) for outcome, value in values.items()})


HEADER: Final = ("WHAT", "NODE SCORE", "DECISIONS", "EQUAL", "REFUSED", "CONTESTED", "EQUAL", "BY CHANCE", "MS")


def rows(replays: Sequence[Replay]) -> Iterator[tuple[str, ...]]:
    """Yield what was compared, for each layout and node score."""
    for each in (each for replay in replays for each in replay.comparisons):
        contested = each.contested
        yield (
            str(each.layout),
            each.score.name,
            str(each.compared),
            f"{100 * each.equal / each.compared:.1f} %",
            str(each.compared - len(each.course.decisions)),
            str(len(contested)),
            str(sum(map(each.is_equal, contested))),
            f"{each.by_chance:.0f} %",
            f"{median(each.milliseconds):.0f}",
        )


def request_rows(replays: Sequence[Replay]) -> Iterator[tuple[str, ...]]:
    """Yield the requests for each pod: those to the API server by kind, and those to the extender."""
    total = sum((each.requests for each in replays), Counter[ApiRequest]())
    for kind, _ in total.most_common():
        yield f"{kind.verb} {kind.resource}", *(each.per_pod(each.requests[kind]) for each in replays)
    yield "all requests to the API server", *(each.per_pod(each.requests.total()) for each in replays)
    for outcome in RequestOutcome:
        if any(each.calls[outcome] for each in replays):
            yield f"requests to the extender: {outcome}", *(each.per_pod(each.calls[outcome]) for each in replays)


async def measure() -> list[Row]:
    replays = await compare(list(_layouts(NODES)), SCORES, DECISIONS)
    found = [each for replay in replays for each in replay.comparisons]
    defaults = {each.layout: each for each in found if each.score == DEFAULT}
    return [row for each in found for row in _measured(each, defaults[each.layout])]


def _measured(found: Comparison, default: Comparison) -> Iterator[Row]:
    what = f"{found.layout}, {found.score.name}"
    share = 100 * found.equal / found.compared
    yield Row(name=f"{what}: {found.compared} decisions as the model's", unit="%", samples=[share], goal=">= 99")
    yield Row(
        name=f"{what}: pod created to bound",
        unit="ms",
        samples=found.milliseconds,
        baseline_name=default.score.name,
        baseline=default.milliseconds,
    )


def _layouts(nodes: Sequence[Nodes]) -> Iterator[Layout]:
    for each in nodes:
        yield from (Layout(each), Layout(each, scarce=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.node_decisions", description=__doc__)
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="for each node score and layout")
    names = [each.name for each in SCORES]
    parser.add_argument("--score", choices=names, action="append", default=[], help="of nodes; default all")
    parser.add_argument("nodes", nargs="*", type=Nodes.parse, default=NODES, metavar="NODESxCARDS")
    options = parser.parse_args()
    scores = [each for each in SCORES if each.name in options.score or not options.score]
    replays = anyio.run(compare, list(_layouts(options.nodes)), scores, options.decisions)
    print(format_table(HEADER, list(rows(replays))))
    header = "FOR EACH POD", *(score.name for score in scores)
    print("\n" + format_table(header, list(request_rows(replays))))


if __name__ == "__main__":
    main()
