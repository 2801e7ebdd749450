"""The devices of pools that differ in names and texts only, and how such pools stand.

All that is worked out of devices is worked out here, once for all nodes that publish the same.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, NamedTuple

from api.model.devices import Device, DeviceTaint, ResourceSliceSpec
from driver.allocation.pools.interning import Slots, Texts, with_texts
from driver.allocation.semantics.allocated_state import Taken
from driver.allocation.semantics.bitset import bits, keep
from driver.allocation.semantics.capacity import unqualified
from driver.allocation.semantics.counters import CLASHING, Counters, Groups, Use, admitted, fits
from driver.allocation.semantics.matching import Selectors, holds, may_read, reads_of


class Template(NamedTuple):
    """A device of a layout."""

    device: Device
    """With the texts of some pool."""
    slots: Slots
    """Where its own texts belong."""
    slice: int
    """Position of its slice among those of the view."""
    spec: ResourceSliceSpec
    """Of that slice; pool, node name and texts are of some pool."""
    taints: tuple[DeviceTaint, ...]
    """All: those that it is published with, and those of rules."""
    fault: str | None
    """Why no selector can be evaluated on it: an attribute that is no value."""


class Selection(NamedTuple):
    """The devices of a view that selectors select, and why they fail on others."""

    selected: int
    errors: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Masks of the devices that need a second look."""

    conditional: int = 0
    """With binding conditions (KEP-5007)."""
    node_bound: int = 0
    """That say for themselves which nodes can use them."""
    shareable: int = 0
    """That can be allocated several times (KEP-5075)."""
    with_policy: int = 0
    """With rules for requests of some capacity, or with a negative one, which no rule could allow."""
    tainted: int = 0
    without_node_operations: int = 0
    """Of slices that skip node operations (KEP-5945)."""
    consuming: int = 0
    """That take from counters."""

    @classmethod
    def of(cls, templates: Sequence[Template]) -> "Traits":
        masks = dict.fromkeys((field.name for field in fields(cls)), 0)
        for index, template in enumerate(templates):
            device, spec = template.device, template.spec
            found = {
                "conditional": device.binding_conditions,
                "node_bound": spec.per_device_node_selection,
                "shareable": device.allow_multiple_allocations,
                "with_policy": any(each.request_policy or each.value.nano < 0 for each in device.capacity.values()),
                "tainted": template.taints,
                "without_node_operations": spec.skip_node_operations,
                "consuming": device.consumes_counters,
            }
            for name, value in found.items():
                masks[name] |= bool(value) << index
        return cls(**masks)


@dataclass(frozen=True, eq=False, slots=True)
class Standing:
    """What is taken of a pool with some layout, and what that leaves. Equal standings of a layout are one object."""

    held: int
    """Devices that are held exclusively."""
    shared: int
    """Devices of which a share is held."""
    consumed: Mapping[int, Mapping[str, int]]
    """What allocated shares take of each device, in units of 1e-9, by the device's own names of capacities."""
    remaining: tuple[int | None, ...]
    """Of each counter set, with guards; None: some set is overdrawn, and nothing of the pool can be taken."""
    groups: tuple[Groups | None, ...]
    """Of each counter set, the compatibility groups that the devices on it share; None: no device is on it."""
    blocked: int
    """Devices that the counters, or the compatibility groups of those allocated, keep away."""


class Layout:
    """The devices of pools that differ in names and texts only, as the nodes see them that can use the same slices."""

    def __init__(
        self, driver: str, templates: Sequence[Template], others: Sequence[Device], counters: Counters | None
    ) -> None:
        self.driver = driver
        self.templates = tuple(templates)
        """In search order."""
        self._others = {device.name: device for device in others}
        self.counters = counters
        """None without counter sets, or with partitionable devices switched off."""
        self._texts: Texts | None = None
        self._varying: set[int] = set()
        self._selections: dict[Hashable, Selection] = {}
        self._discerned: dict[Selectors, tuple[int, ...]] = {}
        self._equal: dict[Hashable, Iterable[tuple[int, int]]] = {}
        self._standings: dict[Taken, Standing] = {}
        self._blocked: dict[tuple[int, int], int] = {}

    @cached_property
    def traits(self) -> Traits:
        return Traits.of(self.templates)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Where each device stands, by its name."""
        return {template.device.name: index for index, template in enumerate(self.templates)}

    @cached_property
    def uses(self) -> tuple[tuple[Use, ...], ...]:
        """What each device takes from the counters."""
        return tuple(self.counters.use(each.device) if self.counters else () for each in self.templates)

    def seen(self, texts: Texts) -> None:
        """Note that a pool of this layout has these ``texts``."""
        if self._texts is None:
            self._texts = texts
        elif texts != self._texts:
            self._varying.update(at for at, text in enumerate(texts) if text != self._texts[at])

    def discerns(self, selectors: Selectors) -> bool:
        """Whether ``selectors`` may tell pools of this layout apart: they read a text that is not the same in all."""
        return not self._varying.isdisjoint(self._read(selectors))

    def _read(self, selectors: Selectors) -> tuple[int, ...]:
        """The texts that ``selectors`` may read."""
        read = self._discerned.get(selectors)
        if read is None:
            texts = (at for name, at in self._text_attributes if may_read(selectors, self.driver, name))
            read = tuple(sorted(frozenset().union(*texts)))
            keep(self._discerned, selectors, read)
        return read

    @cached_property
    def _text_attributes(self) -> Sequence[tuple[str, frozenset[int]]]:
        """The attributes that are texts, each with the texts that it is on some device."""
        texts: dict[str, set[int]] = defaultdict(set)
        for template in self.templates:
            for slot in template.slots:
                texts[slot.attribute].add(slot.text)
        return [(name, frozenset(at)) for name, at in texts.items()]

    def select(self, selectors: Selectors, texts: Texts) -> Selection:
        """The devices that ``selectors`` select in a pool with those ``texts``."""
        key = (selectors, *[texts[at] for at in self._read(selectors)])
        selection = self._selections.get(key)
        return selection if selection is not None else keep(self._selections, key, self._select(selectors, texts))

    def _select(self, selectors: Selectors, texts: Texts) -> Selection:
        """A device is looked at by a selector only if all selectors before hold for it."""
        selected = (1 << len(self.templates)) - 1
        errors: dict[int, str] = {}
        if len(selectors) == 1:
            return self._evaluate(selectors[0], texts)
        for selector in selectors:
            of_one = self.select((selector,), texts)
            errors |= {index: message for index, message in of_one.errors.items() if selected >> index & 1}
            selected &= of_one.selected
        return Selection(selected=selected, errors=dict(sorted(errors.items())))

    def _evaluate(self, selector: str, texts: Texts) -> Selection:
        """One evaluation for all devices that have in common what the selector reads."""
        selected = 0
        errors: dict[int, str] = {}
        for index, devices in self._equal_to(selector, texts):
            template = self.templates[index]
            outcome = template.fault or holds(
                self.driver, with_texts(template.device, template.slots, texts), (selector,)
            )
            if outcome is True:
                selected |= devices
            elif outcome is not False:
                errors |= dict.fromkeys(bits(devices), outcome)
        return Selection(selected=selected, errors=dict(sorted(errors.items())))

    def _equal_to(self, selector: str, texts: Texts) -> Iterable[tuple[int, int]]:
        """The devices between which ``selector`` cannot tell: the first of them, and the mask of all.

        Selectors that differ in constants only, such as the amount of memory, read the same.
        """
        reads = reads_of(selector)
        key = (reads, *[texts[at] for at in self._read((selector,))])
        equal = self._equal.get(key)
        if equal is None:
            masks: dict[Hashable, int] = defaultdict(int)
            for index, template in enumerate(self.templates):
                device = with_texts(template.device, template.slots, texts)
                masks[template.fault, reads and reads.of(self.driver, device)] |= 1 << index
            equal = tuple([((mask & -mask).bit_length() - 1, mask) for mask in masks.values()])
            keep(self._equal, key, equal)
        return equal

    def standing(self, taken: Taken) -> Standing:
        """How a pool stands of which that much is ``taken``."""
        standing = self._standings.get(taken)
        return standing if standing is not None else keep(self._standings, taken, self._standing(taken))

    def _standing(self, taken: Taken) -> Standing:
        shared = self._mask(taken.shared)
        uses = self._uses_of(taken.names)
        sets = len(self.counters.names) if self.counters else 0
        remaining = self.counters.remaining(uses) if self.counters else []
        groups = _groups_of(uses, sets)
        left = tuple(remaining) if remaining is not None else (None,) * sets
        return Standing(
            held=self._mask(taken.exclusive),
            shared=shared,
            consumed={index: self._consumed(self.templates[index].device, taken) for index in bits(shared)},
            remaining=left,
            groups=groups,
            blocked=self._blocked_by(left, groups),
        )

    def _mask(self, names: Collection[str]) -> int:
        return sum(1 << self.positions[name] for name in names if name in self.positions)

    def _consumed(self, device: Device, taken: Taken) -> Mapping[str, int]:
        amounts = (amount for amount in taken.consumed if amount.device == device.name)
        by_name = {unqualified(self.driver, amount.capacity): amount.quantity.nano for amount in amounts}
        return {name: by_name.get(unqualified(self.driver, name), 0) for name in device.capacity}

    def _uses_of(self, names: Collection[str]) -> list[Use]:
        """What the devices of those names take from the counters, in search order; those for other nodes follow."""
        if self.counters is None:
            return []
        positions = sorted(self.positions[name] for name in names if name in self.positions)
        taken = [use for position in positions for use in self.uses[position]]
        for name, other in self._others.items():
            if name in names:
                taken += self.counters.use(other)
        return taken

    def _blocked_by(self, remaining: Sequence[int | None], groups: Sequence[Groups | None]) -> int:
        blocked = 0
        for set_, left in enumerate(remaining):
            blocked |= self.traits.consuming if left is None else self.beyond(set_, left)
        if any(groups) or self._has_groups:
            for index in bits(self.traits.consuming & ~blocked):
                if any(admitted(groups[use.set], use.groups) is None for use in self.uses[index]):
                    blocked |= 1 << index
        return blocked

    @cached_property
    def _has_groups(self) -> bool:
        return any(use.groups for uses in self.uses for use in uses)

    def beyond(self, set_: int, remaining: int) -> int:
        """The devices that take more from a set than ``remaining``. Kept: sets stand at few values in practice."""
        assert self.counters is not None
        mask = self._blocked.get((set_, remaining))
        if mask is None:
            guards = self.counters.guards[set_]
            mask = sum(
                1 << index
                for index in self._users[set_]
                if any(use.set == set_ and not fits(remaining, use.amount, guards) for use in self.uses[index])
            )
            keep(self._blocked, (set_, remaining), mask)
        return mask

    @cached_property
    def _users(self) -> Sequence[Sequence[int]]:
        """The devices that take from each set."""
        assert self.counters is not None
        users: list[list[int]] = [[] for _ in self.counters.names]
        for index, uses in enumerate(self.uses):
            for set_ in {use.set for use in uses}:
                users[set_].append(index)
        return users


def _groups_of(uses: Sequence[Use], sets: int) -> tuple[Groups | None, ...]:
    """The groups that allocated devices share on each set."""
    groups: list[Groups | None] = [None] * sets
    for use in uses:
        present = groups[use.set]
        joined = admitted(present, use.groups)
        if joined is not None:
            groups[use.set] = joined
        elif present and use.groups:
            groups[use.set] = CLASHING  # the slices changed since: nothing can join any more
    return tuple(groups)


NO_LAYOUT: Final = Layout("", (), (), None)
"""Of pools with a problem."""
