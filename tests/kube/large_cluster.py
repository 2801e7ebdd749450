"""A large cluster of equal nodes with GPUs, served by an API server in memory that runs in a process of its own.

Slices, nodes and claims are texts that the server makes of templates when they are listed; nothing ever changes of
them. All other kinds are those of ``tests/kube/memory_server.py``, so a controller can lead there and write.

Each node is like one of several models of nodes: its partitions are taken in a different order, so its slices list
their devices in a different order, too. With ``shuffled`` each node has orders of its own, of everything that has an
order. ``python -m tests.kube.large_cluster NODES CARDS [shuffled]`` prints the URL.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen
from typing import Final

import anyio
import msgspec
import yaml
from aiohttp import web

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.errors import StatusError
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.cluster_states import CLASSES, card
from tests.kube.memory_server import MemoryServer
from tests.kube.shuffled_slices import shuffle_slices

MODELS: Final = 16
"""How many nodes differ in the order of their devices: those of a cluster in use have some dozen orders in common."""
CLAIMS: Final = 8
"""The most claims of a node, each of one partition."""
LABELS: Final = 60
"""Labels of a node, as Node Feature Discovery and NVIDIA's GPU feature discovery write them."""
RESOURCE_CLASSES: Final = {"small": {"profile": "1g.10gb"}, "half": {"profile": "3g.40gb"}, "full": {"cut": "Whole"}}
"""The specs of the cluster's ResourceClasses."""
WAITING: Final = "waiting"
"""The pod, and its claim of a whole card, that fit nowhere: each card has a claim."""
_CLAIMS_PATH: Final = "/apis/resource.k8s.io/v1/resourceclaims"
_PODS_PATH: Final = "/api/v1/pods"
_SLICES_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
_NODES_PATH: Final = "/api/v1/nodes"
_LIST_KINDS: Final = {
    _NODES_PATH: ("v1", "NodeList"),
    _PODS_PATH: ("v1", "PodList"),
    _CLAIMS_PATH: ("resource.k8s.io/v1", "ResourceClaimList"),
    _SLICES_PATH: ("resource.k8s.io/v1", "ResourceSliceList"),
}
"""The version and kind of each list, without which a client takes it for no answer."""
_NODE: Final = "node-00000"
"""The name of the node of the templates; those of nodes have as many characters."""
_UID: Final = "0b6f5b33-2f7d-4b3a-8c39-7a1c5d"


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The objects of a node as texts, in which ``_NODE`` stands for its name."""

    slices: tuple[bytes, ...]
    claims: tuple[bytes, ...]
    pods: tuple[bytes, ...]
    """The pods that use the claims, of the same names."""

    @classmethod
    def build(cls, cards: int, seed: int) -> "NodeTemplate":
        """Build the template of a node with H100, some partitions of which are taken."""
        hardware = [card(index, _NODE) for index in range(cards)]
        taken = list(_take(hardware, Random(seed)))
        return cls(
            slices=tuple(map(_encode_slice, _publish(hardware, taken))),
            claims=tuple(_encode_claims(hardware, taken)),
            pods=tuple(_pod(f"{_NODE}-claim-{number}", node=_NODE) for number in range(len(taken))),
        )


def _take(cards: Sequence[Card], random: Random) -> Iterator[Partition]:
    """Yield a partition of each card, at most CLAIMS, each the first of some size in the order of publication."""
    taken: list[Partition] = []
    for each in random.sample(cards, min(len(cards), CLAIMS)):
        order = publish_order(cards, taken)
        own = [one for one in order.partitions if one in order.available and one.card_uuid == each.uuid]
        taken.append(random.choice([one for one in own if one.profile]))
        yield taken[-1]


def _publish(cards: Sequence[Card], taken: Sequence[Partition]) -> Iterator[ResourceSlice]:
    pool = compile_pool(
        pool_name(_NODE, GPU.name),
        _NODE,
        cards,
        vocabulary=GPU.vocabulary,
        layout=SliceLayout.SPLIT,
        order=publish_order(cards, taken),
    ).pool
    owner = OwnerReference(api_version="v1", kind="Node", name=_NODE, uid=f"{_UID}-{_NODE}", controller=True)
    for number, content in enumerate(pool.slices):
        yield ResourceSlice(
            metadata=ObjectMeta(
                name=f"{_NODE}-gpu.kerf.dev-{number}",
                generate_name=f"{_NODE}-gpu.kerf.dev-",
                uid=f"{_UID}-{_NODE}-{number}",
                resource_version="100",
                generation=1,
                creation_timestamp="2026-11-27T04:00:00Z",
                owner_references=(owner,),
            ),
            spec=ResourceSliceSpec(
                driver=GPU.driver,
                pool=ResourcePool(name=pool.name, generation=1, resource_slice_count=len(pool.slices)),
                node_name=_NODE,
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )


def _encode_slice(slice_: ResourceSlice) -> bytes:
    return msgspec.json.encode(KINDS.resource_slices.encode(slice_))


def _encode_claims(cards: Sequence[Card], taken: Sequence[Partition]) -> Iterator[bytes]:
    by_uuid = {each.uuid: each for each in cards}
    for number, partition in enumerate(taken):
        name = f"{_NODE}-claim-{number}"
        result = {
            "request": "gpu",
            "driver": GPU.driver,
            "pool": pool_name(_NODE, GPU.name),
            "device": device_name(by_uuid[partition.card_uuid], partition),
        }
        field = {"key": "metadata.name", "operator": "In", "values": [_NODE]}
        selected = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        claim = _claim(name, "3g-40gb")
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": selected},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"{_UID}-{name}"}],
        }
        yield msgspec.json.encode(claim)


def _claim(name: str, device_class: str) -> JsonObject:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": 1, "allocationMode": "ExactCount"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"{_UID}-c-{name}", "resourceVersion": "100"},
        "spec": {"devices": {"requests": [request]}},
    }


def _pod(name: str, node: str = "") -> bytes:
    """Return a pod that uses the claim of its name; without a node it waits."""
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"{_UID}-{name}", "resourceVersion": "100"},
            "spec": {
                "nodeName": node,
                "containers": [
                    {"name": "main", "image": "registry/image:1", "resources": {"claims": [{"name": "gpu"}]}}
                ],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            },
            "status": {"phase": "Running" if node else "Pending"},
        }
    )


def _node(name: str) -> bytes:
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.feature-{number}": "true" for number in range(LABELS)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"{_UID}-{name}",
                "resourceVersion": "100",
                "labels": {"kubernetes.io/hostname": name, **labels},
                "annotations": {f"node.alpha.kubernetes.io/{number}": "x" * 100 for number in range(10)},
            },
            "status": {"conditions": [ready], "nodeInfo": {"kubeletVersion": "v1.37.0"}},
        }
    )


class LargeCluster:
    """The API server."""

    def __init__(self, nodes: int, cards: int, *, shuffled: bool = False) -> None:
        self._nodes = nodes
        self._templates = [NodeTemplate.build(cards, seed) for seed in range(min(nodes, MODELS))]
        self._decoded = [[msgspec.json.decode(one) for one in each.slices] for each in self._templates]
        self._shuffled = shuffled
        self._memory = MemoryServer()
        self._memory.json = {
            "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
            "/apis/resource.k8s.io": {"versions": [{"version": "v1"}]},
            "/apis/resource.k8s.io/v1": {"resources": [{"name": "resourceslices"}]},
        }
        for name, spec in RESOURCE_CLASSES.items():
            document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": name}}
            self._memory.put("resourceclasses", {**document, "spec": {"device": "gpu", **spec}})
        for device_class in CLASSES:
            self._memory.put("deviceclasses", KINDS.device_classes.encode(device_class))
        self._lists: Mapping[str, Callable[[int], Sequence[bytes]]] = {
            _NODES_PATH: lambda number: (_node(_name(number)),),
            _SLICES_PATH: self._slices,
            _CLAIMS_PATH: lambda number: self._template(number).claims,
            _PODS_PATH: lambda number: self._template(number).pods,
        }
        self._waiting = {
            _CLAIMS_PATH: (msgspec.json.encode(_claim(WAITING, "whole")),),
            _PODS_PATH: (_pod(WAITING),),
        }

    def _template(self, number: int) -> NodeTemplate:
        return self._templates[number % len(self._templates)]

    def _slices(self, number: int) -> Sequence[bytes]:
        if self._shuffled:
            return list(shuffle_slices(self._decoded[number % len(self._decoded)], Random(number)))
        return self._template(number).slices

    def _items(self, path: str, number: int) -> Sequence[bytes]:
        """Return the objects of a node; those of the node after the last one are on no node."""
        if number == self._nodes:
            return self._waiting.get(path, ())
        name = _name(number).encode()
        return [one.replace(_NODE.encode(), name) for one in self._lists[path](number)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        forwarded = HttpRequest(
            method=request.method,
            path=request.path,
            resource="",
            query=dict(request.query),
            body=await request.read() or None,
        )
        if "watch" in request.query:
            return await self._watch(request, forwarded)
        if request.method == "GET" and request.path in self._lists:
            return web.Response(body=self._list(request.path, request.query), content_type="application/json")
        try:
            return web.Response(body=await self._memory.call(forwarded), content_type="application/json")
        except StatusError as error:
            status = {"kind": "Status", "code": error.status, "reason": error.reason, "message": str(error)}
            return web.json_response(status, status=error.status)

    async def _watch(self, request: web.Request, forwarded: HttpRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        async with aclosing(self._memory.lines(forwarded)) as lines:
            async for line in lines:
                await response.write(line + b"\n")
        return response

    def _list(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return a page. Its position is the number of a node and, of its objects, how many came before."""
        items: list[bytes] = []
        more = ""
        limit = int(query.get("limit") or sys.maxsize)
        first, skipped = map(int, (query.get("continue") or "0-0").split("-"))
        has_devices = query.get("fieldSelector", f"spec.driver={GPU.driver}") in ("", f"spec.driver={GPU.driver}")
        for number in range(first, self._nodes + 1) if has_devices or path == _PODS_PATH else ():
            found = self._items(path, number)[skipped : skipped + limit - len(items)]
            items += found
            if len(items) == limit:
                more = f"{number}-{skipped + len(found)}"
                break
            skipped = 0
        api_version, kind = _LIST_KINDS[path]
        head = {"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": "100", "continue": more}}
        return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _name(number: int) -> str:
    return f"node-{number:05}"


async def _serve(nodes: int, cards: int, *, shuffled: bool) -> None:
    cluster = LargeCluster(nodes, cards, shuffled=shuffled)
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", cluster.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [(host, port)] = runner.addresses
    print(f"http://{host}:{port}", flush=True)
    await anyio.sleep_forever()


@contextmanager
def serving_large_cluster(nodes: int, cards: int, kubeconfig: Path, *, shuffled: bool = False) -> Iterator[str]:
    """Serve a cluster from another process until the end of the context; ``kubeconfig`` is written. Yields the URL."""
    options = ["shuffled"] if shuffled else []
    command = [sys.executable, "-m", "tests.kube.large_cluster", str(nodes), str(cards), *options]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, "the server has ended"
            kubeconfig.write_text(yaml.safe_dump(_kubeconfig(url)))
            yield url
        finally:
            process.kill()


def _kubeconfig(url: str) -> JsonObject:
    context = {"cluster": "large", "user": "admin", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "large", "cluster": {"server": url}}],
        "users": [{"name": "admin", "user": {}}],
        "contexts": [{"name": "large", "context": context}],
        "current-context": "large",
    }


if __name__ == "__main__":
    anyio.run(partial(_serve, int(sys.argv[1]), int(sys.argv[2]), shuffled="shuffled" in sys.argv[3:]))
