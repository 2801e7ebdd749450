from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.model.devices import (
    Attribute,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    Pool,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceContent,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import is_dns_subdomain
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kube.slice_plan import (
    AcceptedSlice,
    CreateSlice,
    DeleteSlice,
    SliceContext,
    UpdateSlice,
    Write,
    find_pool_problems,
    plan_pool,
    slice_name,
)

OWNER = OwnerReference(api_version="v1", kind="Node", name="n1", uid="node-uid")
NOW = "2026-11-20T08:00:00Z"


def plan(pools: Sequence[Pool], existing: Iterable[ResourceSlice], context: SliceContext) -> tuple[Write, ...]:
    """The writes for all pools of the driver on the node; pools that are not in ``pools`` are removed."""
    found: dict[str, list[ResourceSlice]] = {pool.name: [] for pool in pools}
    for value in existing:
        found.setdefault(value.spec.pool.name, []).append(value)
    desired = {pool.name: pool for pool in pools}
    return tuple(write for name, slices in found.items() for write in plan_pool(desired.get(name), slices, context))


def context(**changes: Mapping[str, int] | Mapping[str, AcceptedSlice] | OwnerReference) -> SliceContext:
    fields: dict[str, object] = {"generations": {}, "accepted": {}, "owner": OWNER, **changes}
    return SliceContext(driver="gpu.kerf.dev", node_name="n1", **fields)  # type: ignore[arg-type]


def device(name: str, value: int = 0, *, taint: str = "") -> Device:
    taints = (DeviceTaint(key="gpu.kerf.dev/ill", value=taint, effect="NoSchedule"),) if taint else ()
    return Device(name=name, attributes={"value": Attribute.of(value)}, taints=taints)


def pool(*slices: Sequence[Device], name: str = "n1/gpu") -> Pool:
    return Pool(name=name, slices=tuple(SliceContent(devices=tuple(devices)) for devices in slices))


class Server:
    """Keeps slices as the API server does, as far as plans can tell."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.version = 0

    def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.version += 1
            match write:
                case DeleteSlice(name=name, uid=uid, resource_version=version):
                    found = self.slices.pop(name)
                    assert (found.metadata.uid, found.metadata.resource_version) == (uid, version)
                case UpdateSlice(value=value):
                    found = self.slices[value.metadata.name]
                    assert found.metadata.resource_version == value.metadata.resource_version
                    self.keep(value, found.metadata.uid)
                case CreateSlice(value=value):
                    assert value.metadata.name not in self.slices
                    self.keep(value, f"uid-{self.version}")

    def keep(self, value: ResourceSlice, uid: str) -> None:
        metadata = replace(value.metadata, uid=uid, resource_version=str(self.version))
        devices = tuple(
            replace(device, taints=tuple(replace(taint, time_added=taint.time_added or NOW) for taint in device.taints))
            for device in value.spec.devices
        )
        kept = replace(value, metadata=metadata, spec=replace(value.spec, devices=devices))
        self.slices[value.metadata.name] = kept

    def add_foreign(self, name: str, pool_name: str, generation: int) -> None:
        self.version += 1
        spec = ResourceSliceSpec(
            driver="gpu.kerf.dev",
            node_name="n1",
            pool=ResourcePool(name=pool_name, generation=generation, resource_slice_count=1),
            devices=(device("foreign"),),
        )
        metadata = ObjectMeta(name=name, uid=f"uid-{self.version}", resource_version=str(self.version))
        self.slices[name] = ResourceSlice(metadata=metadata, spec=spec)

    def publish(self, *pools: Pool, at: SliceContext | None = None) -> tuple[Write, ...]:
        writes = plan(pools, self.slices.values(), at or context())
        self.apply(writes)
        return writes

    def of(self, name: str) -> list[ResourceSlice]:
        """Return the slices of a pool in the scheduler's order."""
        return [self.slices[key] for key in sorted(self.slices) if self.slices[key].spec.pool.name == name]


Content = tuple[tuple[tuple[str, int], ...], ...]


def content(slices: Sequence[Sequence[Device]]) -> Content:
    return tuple(
        tuple((device.name, device.attributes["value"].int_value or 0) for device in devices) for devices in slices
    )


def content_of(value: Pool) -> Content:
    return content([part.devices for part in value.slices] or [()])


def seen_by_consumer(server: Server, name: str) -> Content | None:
    """What a scheduler takes for the pool: the slices of the highest generation, when all are there; else None."""
    slices = server.of(name)
    if not slices:
        return None
    highest = max(value.spec.pool.generation for value in slices)
    newest = [value for value in slices if value.spec.pool.generation == highest]
    if any(value.spec.pool.resource_slice_count != len(newest) for value in newest):
        return None
    return content([value.spec.devices for value in newest])


def generations(server: Server, name: str = "n1/gpu") -> list[int]:
    return [value.spec.pool.generation for value in server.of(name)]


def test_a_new_pool_is_created_slice_by_slice_in_its_order() -> None:
    server = Server()
    writes = server.publish(pool([device("b")], [device("a")], [device("c")]))
    assert [type(write) for write in writes] == [CreateSlice] * 3
    assert seen_by_consumer(server, "n1/gpu") == ((("b", 0),), (("a", 0),), (("c", 0),))
    for value in server.slices.values():
        assert value.metadata.owner_references == (OWNER,)
        assert (value.spec.driver, value.spec.node_name) == ("gpu.kerf.dev", "n1")
    assert generations(server) == [1, 1, 1]


def test_a_pool_without_devices_is_one_empty_slice() -> None:
    server = Server()
    server.publish(Pool(name="n1/gpu", slices=()))
    assert seen_by_consumer(server, "n1/gpu") == ((),)


def test_what_is_published_already_needs_no_write() -> None:
    server = Server()
    wanted = pool([device("a", taint="yes")], [device("b")])
    server.publish(wanted)
    assert server.publish(wanted) == ()


def test_one_changed_slice_is_one_update_at_the_same_generation() -> None:
    server = Server()
    server.publish(pool([device("a")], [device("b")], [device("c")]))
    writes = server.publish(pool([device("a")], [device("b", 1)], [device("c")]))
    assert [type(write) for write in writes] == [UpdateSlice]
    assert generations(server) == [1, 1, 1]


def test_two_changed_slices_raise_the_generation_of_all() -> None:
    server = Server()
    server.publish(pool([device("a")], [device("b")], [device("c")]))
    writes = server.publish(pool([device("a", 1)], [device("b", 1)], [device("c")]))
    assert [type(write) for write in writes] == [UpdateSlice] * 3
    assert generations(server) == [2, 2, 2]


@pytest.mark.parametrize("lost", [[0], [1], [0, 2], [1, 2]])
def test_lost_slices_are_created_again_at_the_same_generation(lost: list[int]) -> None:
    server = Server()
    wanted = pool([device("a")], [device("b")], [device("c")])
    server.publish(wanted)
    for name in [sorted(server.slices)[index] for index in lost]:
        del server.slices[name]
    writes = server.publish(wanted, at=context(generations={"n1/gpu": 1}))
    assert [type(write) for write in writes] == [CreateSlice] * len(lost)
    assert generations(server) == [1, 1, 1]


def test_a_rewrite_that_was_stopped_is_finished_at_its_generation() -> None:
    server = Server()
    server.publish(pool([device("a")], [device("b")], [device("c")]))
    wanted = pool([device("a", 1)], [device("b", 1)], [device("c")])
    server.apply(plan([wanted], server.slices.values(), context())[:1])
    assert generations(server) == [2, 1, 1]
    writes = server.publish(wanted)
    assert [type(write) for write in writes] == [UpdateSlice] * 2
    assert generations(server) == [2, 2, 2]


def test_a_changed_slice_beside_a_lost_one_raises_the_generation() -> None:
    server = Server()
    server.publish(pool([device("a")], [device("b")], [device("c")]))
    del server.slices[min(server.slices)]
    writes = server.publish(pool([device("a")], [device("b", 1)], [device("c")]))
    assert [type(write) for write in writes] == [UpdateSlice, UpdateSlice, CreateSlice]
    assert generations(server) == [2, 2, 2]


def test_a_pool_that_is_gone_altogether_comes_back_above_every_generation_that_was() -> None:
    server = Server()
    server.publish(pool([device("a")]), at=context(generations={"n1/gpu": 7}))
    assert generations(server) == [8]


def test_fewer_slices_delete_first_and_more_slices_create_last() -> None:
    server = Server()
    server.publish(pool([device("a")], [device("b")], [device("c")]))
    fewer = server.publish(pool([device("a")], [device("b")]))
    assert [type(write) for write in fewer] == [DeleteSlice, UpdateSlice, UpdateSlice]
    more = server.publish(pool([device("a")], [device("b")], [device("c")], [device("d")]))
    assert [type(write) for write in more] == [UpdateSlice, UpdateSlice, CreateSlice, CreateSlice]
    assert generations(server) == [3, 3, 3, 3]


def test_a_pool_that_is_not_wanted_any_more_is_deleted_and_others_are_left_alone() -> None:
    server = Server()
    server.publish(pool([device("a")]), pool([device("b")], name="n1/fpga"))
    writes = server.publish(pool([device("a")]))
    assert [type(write) for write in writes] == [DeleteSlice]
    assert {value.spec.pool.name for value in server.slices.values()} == {"n1/gpu"}


def test_taints_keep_the_time_that_the_server_gave_them_also_when_their_device_moves() -> None:
    server = Server()
    server.publish(pool([device("a", taint="ecc"), device("b")], [device("c")]))
    for name, value in server.slices.items():
        aged = tuple(
            replace(found, taints=tuple(replace(taint, time_added="2020-01-01T00:00:00Z") for taint in found.taints))
            for found in value.spec.devices
        )
        server.slices[name] = replace(value, spec=replace(value.spec, devices=aged))
    server.publish(pool([device("c")], [device("a", taint="ecc"), device("b", taint="ecc")]))
    times = {
        found.name: [taint.time_added for taint in found.taints]
        for value in server.slices.values()
        for found in value.spec.devices
    }
    assert times == {"a": ["2020-01-01T00:00:00Z"], "b": [NOW], "c": []}


def test_a_slice_of_another_owner_is_taken_over() -> None:
    server = Server()
    server.publish(pool([device("a")]))
    new_owner = replace(OWNER, uid="the node was made anew")
    writes = server.publish(pool([device("a")]), at=context(owner=new_owner))
    assert [type(write) for write in writes] == [UpdateSlice]
    assert [value.metadata.owner_references for value in server.slices.values()] == [(new_owner,)]


def test_others_labels_and_finalizers_survive_an_update() -> None:
    server = Server()
    server.publish(pool([device("a")]))
    (name,) = server.slices
    marked = replace(server.slices[name].metadata, labels={"team": "x"}, finalizers=("example.com/wait",))
    server.slices[name] = replace(server.slices[name], metadata=marked)
    server.publish(pool([device("a", 1)]))
    assert server.slices[name].metadata.labels == {"team": "x"}
    assert server.slices[name].metadata.finalizers == ("example.com/wait",)


def test_what_the_server_made_of_a_slice_before_is_not_written_again() -> None:
    server = Server()
    wanted = pool([device("a", 1, taint="yes")])
    (write,) = server.publish(wanted)
    assert isinstance(write, CreateSlice)
    (name,) = server.slices
    kept = replace(server.slices[name].spec, devices=(Device(name="a"),))
    server.slices[name] = replace(server.slices[name], spec=kept)
    accepted = {name: AcceptedSlice(sent=write.value.spec, kept=kept, dropped=("devices[].taints",))}
    assert server.publish(wanted, at=context(accepted=accepted)) == ()
    assert server.publish(pool([device("a", 2, taint="yes")]), at=context(accepted=accepted)) != ()


# Names


def test_a_slice_name_sorts_by_place_and_tells_what_it_is() -> None:
    names = [slice_name(index, "gpu.kerf.dev", "node-1", "node-1/gpu") for index in (0, 1, 9, 10, 255, 4096)]
    assert names == sorted(names)
    assert names[3].startswith("0000a-gpu.kerf.dev-node-1-")


def test_names_of_two_pools_of_a_node_differ() -> None:
    assert slice_name(0, "gpu.kerf.dev", "n1", "n1/gpu") != slice_name(0, "gpu.kerf.dev", "n1", "n1/fpga")


LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True)
SUBDOMAIN = st.lists(LABEL, min_size=1, max_size=5).map(".".join)


@given(st.integers(0, 2**20 - 1), SUBDOMAIN.filter(lambda name: len(name) <= 63), SUBDOMAIN)
def test_a_slice_name_is_a_legal_object_name_however_long_its_parts(index: int, driver: str, node: str) -> None:
    assume(len(node) <= 253)
    assert is_dns_subdomain(slice_name(index, driver, node, f"{node}/gpu"))


# Validity


def counted(name: str, *consumed: tuple[str, str]) -> Device:
    one = Counter(value=Quantity(1))
    return Device(
        name=name,
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=set_name, counters={counter: one}) for set_name, counter in consumed
        ),
    )


def counters(name: str, *names: str) -> CounterSet:
    return CounterSet(name=name, counters={counter: Counter(value=Quantity(1)) for counter in names})


def test_a_sound_pool_has_no_problems() -> None:
    parts = (
        SliceContent(shared_counters=(counters("card", "slice-0"),)),
        SliceContent(devices=(counted("a", ("card", "slice-0")),)),
    )
    assert find_pool_problems(Pool(name="n1/gpu", slices=parts)) == ()


def test_every_problem_of_a_pool_is_found() -> None:
    parts = (
        SliceContent(shared_counters=(counters("card", "slice-0"), counters("card"))),
        SliceContent(devices=(counted("a", ("card", "slice-0"), ("other", "x")),)),
        SliceContent(devices=(device("a"),)),
    )
    assert [str(problem) for problem in find_pool_problems(Pool(name="n1/gpu", slices=parts))] == [
        "devices[a]: two devices have this name",
        "sharedCounters[card]: two counter sets have this name",
        "devices[a].consumesCounters: the pool has no counter card/slice-0",
        "devices[a].consumesCounters: the pool has no counter other/x",
    ]


# Properties


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Up to six devices, each once, over up to four slices."""
    slices: list[list[Device]] = [[] for _ in range(draw(st.integers(0, 4)))]
    for name in draw(st.sets(st.sampled_from("abcdef"))) if slices else ():
        made = device(name, draw(st.integers(0, 1)), taint=draw(st.sampled_from(["", "ecc"])))
        slices[draw(st.integers(0, len(slices) - 1))].append(made)
    return pool(*slices)


class Step(NamedTuple):
    """Publish ``pool``, stop after ``writes`` writes, then lose the slices at ``lose``, and find a foreign one."""

    pool: Pool
    writes: int
    lose: frozenset[int]
    foreign: int | None


STEPS = st.builds(
    Step,
    pool=pools(),
    writes=st.integers(0, 12),
    lose=st.frozensets(st.integers(0, 4), max_size=2),
    foreign=st.none() | st.integers(0, 6),
)


@given(st.lists(STEPS, max_size=5), pools())
def test_from_any_state_one_plan_leads_to_what_is_wanted_and_a_second_finds_nothing_to_do(
    steps: list[Step], wanted: Pool
) -> None:
    server = Server()
    for step in steps:
        server.apply(plan([step.pool], server.slices.values(), context())[: step.writes])
        for name in [name for index, name in enumerate(sorted(server.slices)) if index in step.lose]:
            del server.slices[name]
        if step.foreign is not None:
            server.add_foreign(f"foreign-{step.foreign}", "n1/gpu", step.foreign)
    server.publish(wanted)
    assert seen_by_consumer(server, wanted.name) == content_of(wanted)
    assert len(set(generations(server))) == 1
    assert server.publish(wanted) == ()


@given(st.lists(STEPS.filter(lambda step: step.foreign is None), min_size=2, max_size=4), st.booleans())
def test_at_no_time_a_consumer_sees_a_pool_that_was_never_published(steps: list[Step], remembers: bool) -> None:
    server = Server()
    used: dict[str, int] = {}
    ever: set[Content | None] = {None}
    for step in steps:
        ever.add(content_of(step.pool))
        for write in plan([step.pool], server.slices.values(), context(generations=used))[: step.writes]:
            server.apply([write])
            assert seen_by_consumer(server, "n1/gpu") in ever
            if remembers and not isinstance(write, DeleteSlice):
                used = {"n1/gpu": write.value.spec.pool.generation}
        for name in [name for index, name in enumerate(sorted(server.slices)) if index in step.lose]:
            del server.slices[name]
            assert seen_by_consumer(server, "n1/gpu") in ever


@given(pools(), st.data())
def test_a_change_of_one_slice_costs_one_write(wanted: Pool, data: st.DataObject) -> None:
    assume(wanted.slices)
    server = Server()
    server.publish(wanted)
    index = data.draw(st.integers(0, len(wanted.slices) - 1))
    changed = replace(wanted.slices[index], devices=(*wanted.slices[index].devices, device("new")))
    parts = tuple(changed if place == index else part for place, part in enumerate(wanted.slices))
    assert len(server.publish(replace(wanted, slices=parts))) == 1


@given(pools(), pools())
def test_no_slice_is_written_twice_in_a_plan_and_deletes_come_first_and_creates_last(before: Pool, after: Pool) -> None:
    server = Server()
    server.publish(before)
    writes = plan_pool(after, server.slices.values(), context())
    order = [(DeleteSlice, UpdateSlice, CreateSlice).index(type(write)) for write in writes]
    assert order == sorted(order)
    names = [write.name if isinstance(write, DeleteSlice) else write.value.metadata.name for write in writes]
    assert len(names) == len(set(names))
