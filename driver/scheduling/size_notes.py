"""Sizes that requests get and that are mostly not meant: a little too much is asked for, or a share where none is.
Also partitions of which a process can use only one.

Vendors name partitions by rounded amounts: a ``1g.20gb`` has 19.6 GiB. A request for 20Gi therefore takes a partition
of twice the size. A request asks for an amount by ``capacity.requests`` or by a ``quantity`` in a selector of its own
or of its class. The amount is the reason that a device does not match if the device would match with that much: so
every form of expression is understood.

Example: "20Gi is 0.4 GiB more than a 1g.20gb of h100-80gb-sxm has: it takes a 3g.40gb. 19Gi or 20G take the 1g.20gb".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.core.v1 import ContainerClaim, Pod
from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.model.claims import DeviceClass, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.allocation.semantics.matching import Selectors, evaluate_selectors, selector_expressions

_NEAR: Final = 8
"""A request is near a size if it is at most an eighth above: the name of a known profile is hardly further above its
memory (18 GB for 16 GiB), and a request that is further above was not meant as that size."""
_GIB: Final = 2**30
_GIGA: Final = 10**9
_LEAST_EXCESS: Final = 0.1
"""GiB from which on an excess is shown in GiB: one decimal shows less as nothing."""
_LITERAL: Final = re.compile(r"""quantity\(\s*['"]([^'"]*)['"]\s*\)""")
_MODEL_NAMES: Final = ("model", "productName")
"""Attributes that name the model of a card, of Kerf's drivers and of NVIDIA's."""
_PROFILE: Final = "profile"

_CUDA: Final = "cudaComputeCapability"

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class DeviceSize:
    """A size that devices of one model have."""

    model: str
    profile: str
    """Empty: the whole card."""
    amount: Quantity

    @property
    def short(self) -> str:
        return self.profile or "whole card"

    def __str__(self) -> str:
        return f"a {self.profile} of {self.model}" if self.profile else f"the whole {self.model}"


def is_near(requested: Quantity, amount: Quantity) -> bool:
    """Whether a request is a little more than an amount of bytes."""
    size, excess = int(amount), int(requested) - int(amount)
    return excess > 0 and size >= _GIB and excess * _NEAR <= size


def is_waste(requested: Quantity, amount: Quantity) -> bool:
    """Whether an amount is so much more than was requested that the next smaller size was meant."""
    return (int(amount) - int(requested)) * _NEAR > int(requested)


def choose_smaller(missed: Sequence[DeviceSize]) -> DeviceSize:
    """Return which of the sizes that a request is near takes the whole Gi below: the smallest that has as much."""
    least = max(int(each.amount) for each in missed) // _GIB * _GIB
    having = (each for each in missed if int(each.amount) >= least)
    return min(having, key=lambda each: (each.amount, each.model, each.profile))


def describe_near_size(requested: Quantity, smaller: DeviceSize, larger: DeviceSize | None, verb: str) -> str:
    """Return a sentence about a request that is near ``smaller``, and takes or needs (``verb``) ``larger``.

    ``larger`` None: no device has as much.

    >>> small = DeviceSize("h100", "1g.20gb", Quantity("20096Mi"))
    >>> describe_near_size(Quantity("20Gi"), small, DeviceSize("h100", "3g.40gb", Quantity("40448Mi")), "takes")
    '20Gi is 0.4 GiB more than a 1g.20gb of h100 has: it takes a 3g.40gb. 19Gi or 20G take the 1g.20gb'
    """
    excess = (int(requested) - int(smaller.amount)) / _GIB
    shown = f"{excess:.1f} GiB" if excess >= _LEAST_EXCESS else f"{excess * 1024:.1f} MiB"
    then = "no device has as much"
    if larger is not None:
        of_model = f" of {larger.model}" if larger.model != smaller.model else ""
        then = f"it {verb} a {larger.short}{of_model}"
    less = " or ".join(suggest_amounts(requested, smaller.amount))
    return f"{requested} is {shown} more than {smaller} has: {then}. {less} take the {smaller.short}"


def suggest_amounts(requested: Quantity, amount: Quantity) -> tuple[str, str]:
    """Return the largest whole Gi and G that are not above ``amount``; rather the number of a request in Gi, as G.

    >>> suggest_amounts(Quantity("40Gi"), Quantity("40448Mi"))
    ('39Gi', '40G')
    """
    gibi, rest = divmod(int(requested), _GIB)
    giga = int(amount) // _GIGA
    return f"{int(amount) // _GIB}Gi", f"{gibi if not rest and gibi <= giga else giga}G"


class _Published(NamedTuple):
    """A published device."""

    driver: str
    device: Device

    def size(self, capacity: str) -> DeviceSize:
        model = next((text for name in _MODEL_NAMES if (text := self.read(name))), self.driver)
        return DeviceSize(model, self.read(_PROFILE), self.device.capacity[capacity].value)

    def read(self, attribute: str) -> str:
        """Return the string of an attribute of the driver's own domain; empty: there is none."""
        found = self.device.attributes.get(attribute) or self.device.attributes.get(f"{self.driver}/{attribute}")
        return (found.string if found is not None else None) or ""

    @property
    def is_mig(self) -> bool:
        """Whether it is a partition of a GPU for CUDA, of Kerf's driver or NVIDIA's."""
        names = {name.rpartition("/")[2] for name in self.device.attributes}
        return _CUDA in names and bool(self.read(_PROFILE))

    @property
    def kind(self) -> tuple[object, ...]:
        """What is equal for all devices of one size."""
        amounts = tuple((name, each.value.nano) for name, each in self.device.capacity.items())
        return (self.driver, *map(self.read, (*_MODEL_NAMES, _PROFILE)), amounts)


class _Ask(NamedTuple):
    """One request, or one alternative of it."""

    name: str
    """As results name it."""
    selectors: Selectors
    least: Mapping[str, Quantity]
    """The amounts of ``capacity.requests``."""

    @property
    def amounts(self) -> set[Quantity]:
        """The amounts that are named, whatever for."""
        texts = (text for expression in self.selectors for text in _LITERAL.findall(expression))
        return {*self.least.values(), *_parse_amounts(texts)}

    def is_missed_by(self, published: _Published, capacity: str, amount: Quantity) -> bool:
        """Whether a device does not match for no other reason than that it has less of ``capacity``."""
        driver, device = published
        enough = Quantity.of_bytes(int(amount) + 1)  # a selector may want more than the amount
        raised = {**device.capacity, capacity: _replace(device.capacity[capacity], value=enough)}
        if evaluate_selectors(driver, _replace(device, capacity=raised), self.selectors) is not True:
            return False
        return self.least.get(capacity) == amount or evaluate_selectors(driver, device, self.selectors) is not True


class PublishedSizes:
    """The sizes of published devices, which are listed when the first request names an amount."""

    def __init__(self, slices: InternedSlices) -> None:
        self._slices = slices

    def find_notes(self, claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Iterator[str]:
        """Yield a sentence about each request of ``claim`` that gets, or would get, another size than is meant."""
        results = claim.status.allocation.devices.results if claim.status.allocation else ()
        for ask in _list_requests(claim, classes):
            given = [each for each in results if each.request == ask.name]
            if given or not results:
                near = (self._describe_near(ask, amount, [each.id for each in given]) for amount in ask.amounts)
                yield from (f"request {ask.name}: {text}" for text in sorted(filter(None, near)))
            if ask.least and given and all(each.share_id is None for each in given):
                yield (
                    f"request {ask.name}: capacity.requests is a minimum, and the claim holds all of its device: a "
                    "share of one needs a class of shared devices, such as a ResourceClass with allocation: Shared"
                )

    def find_container_notes(self, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Iterator[str]:
        """Yield a sentence about each container with several MIG devices, of which a process can use one.

        ``claims`` are those of the pod by the name of their entry.
        """
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            given = (id_ for used in container.resources.claims for id_ in _list_given(used, claims))
            partitions = [each for id_ in given for each in self._find(id_) if each.is_mig]
            if len(partitions) > 1:
                yield (
                    f"container {container.name} has {len(partitions)} MIG devices, and a process that uses CUDA sees "
                    "one: run one process for each, with its own CUDA_VISIBLE_DEVICES"
                )

    @cached_property
    def _candidates(self) -> Sequence[_Published]:
        """One exclusive device of each size; slices of many nodes differ in nothing else than names."""
        slices = self._slices.restore_one_of_each()
        devices = (_Published(each.spec.driver, device) for each in slices for device in each.spec.devices)
        return tuple({each.kind: each for each in devices if not each.device.allow_multiple_allocations}.values())

    def _describe_near(self, ask: _Ask, amount: Quantity, given: Sequence[DeviceId]) -> str:
        """Return the sentence about an amount of a request; empty: it is near no size, or wastes little."""
        missed = [
            (each.size(name), name)
            for each in self._candidates
            for name, capacity in each.device.capacity.items()
            if is_near(amount, capacity.value) and ask.is_missed_by(each, name, amount)
        ]
        if not missed:
            return ""
        name = max(missed, key=lambda each: each[0].amount)[1]
        smaller = choose_smaller([size for size, capacity in missed if capacity == name])
        found = [each for id_ in given for each in self._find(id_)]
        sizes = [each.size(name) for each in found] if given else self._find_larger(ask, amount, name)
        larger = min(sizes, key=lambda each: each.amount, default=None)
        if given and larger is None:
            return ""  # what it got is not published any more
        if larger is not None and (larger.amount < amount or not is_waste(amount, larger.amount)):
            return ""  # the amount is a limit from above, or another size has hardly more
        return describe_near_size(amount, smaller, larger, "takes" if given else "needs")

    def _find_larger(self, ask: _Ask, amount: Quantity, capacity: str) -> list[DeviceSize]:
        having = (each for each in self._candidates if capacity in each.device.capacity)
        return [
            size
            for each in having
            if (size := each.size(capacity)).amount >= amount
            and evaluate_selectors(each.driver, each.device, ask.selectors) is True
        ]

    def _find(self, id_: DeviceId) -> Iterator[_Published]:
        """Yield the device of this identity, if it is still published."""
        for each in self._slices.newest_of_pool(PoolId(id_.driver, id_.pool)):
            yield from (_Published(id_.driver, device) for device in each.spec.devices if device.name == id_.device)


def _list_given(used: ContainerClaim, claims: Mapping[str, ResourceClaim]) -> Iterator[DeviceId]:
    """Yield the devices that a container gets by one entry of its claims."""
    claim = claims.get(used.name)
    for result in claim.status.allocation.devices.results if claim and claim.status.allocation else ():
        if not used.request or result.request_name.request == used.request:
            yield result.id


def _parse_amounts(texts: Iterable[str]) -> Iterator[Quantity]:
    for text in texts:
        try:
            yield Quantity(text)
        except InvalidQuantityError:
            continue  # the expression fails on every device, which the verdict says


def _list_requests(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Iterator[_Ask]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield _read_request(request.name, request.exactly, classes)
        for alternative in request.first_available:
            yield _read_request(f"{request.name}/{alternative.name}", alternative, classes)


def _read_request(
    name: str, request: ExactDeviceRequest | DeviceSubRequest, classes: Mapping[str, DeviceClass]
) -> _Ask:
    class_ = classes.get(request.device_class_name)
    selectors = selector_expressions(class_.spec.selectors if class_ else (), request.selectors)
    return _Ask(name, selectors, request.capacity.requests if request.capacity else {})
