"""The contract of backends: what a vendor implements for one kind of hardware, and the values that pass through it.

The methods block. The plugin runs them in worker threads: for each card one call at a time, different cards at the same
time, ``discover`` and ``wait_for_events`` beside all of them. Every call may be the last one before the process is
killed, and every call may come again with the same arguments, also in a new process.

**Nothing on the hardware says whose it is.** No card keeps a mark of an owner, and no file of a backend says it either.
What is ours follows from records alone: before each prepare the plugin surveys the card and notes which partitions are
there; what is found later at exactly the device's place and was not there before is what an interrupted prepare left.
It is handed to ``prepare`` and ``abandon`` as ``found``. Everything else belongs to others, and is never changed,
removed or handed out. ``kerf_dra.driver.kubeletplugin.backends.ownership`` decides this, so that no backend has to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.api.kerf.card_repairs import CardRepair
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import ClaimRef, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

Handle: TypeAlias = JsonObject
"""The result of ``prepare`` as plain JSON. The checkpoint keeps it; ``unprepare`` and ``edits`` need nothing else.

Three keys, where they are there, are for others to see, in the status of claims, device metadata and metrics: ``uuid``,
the UUID by which programs address the device, ``function``, which is loaded, and ``instance``, the number by which the
vendor's tools name a partition on its card (NVIDIA's GPU instance ID). All other keys are the backend's own.
"""


class HardwareBusyError(TransientError):
    """The hardware is in use by another process, or is not ready yet: the kubelet's next try may succeed."""


class HardwareInUseError(HardwareBusyError):
    """The hardware refuses a change because something uses what it is about; it does not say what."""


class HardwareHeldError(HardwareBusyError):
    """A process holds what is to be released, and nothing but its end helps; the message names it.

    After some tries the plugin ends the claim for the kubelet, and goes on with the release by itself.
    """


class HardwareRefusedError(PermanentError):
    """The hardware can never do this: an illegal placement, an image that does not fit, a failed card."""


class UnsuitableClaimError(HardwareRefusedError):
    """The claim asks of its device what that is not for: the hardware is not at fault, and others may have it."""


class HardwareConflictError(TransientError):
    """Another program holds what the device needs; the message names it, as in "in use outside of Kerf: 3g.40gb at
    0".
    """


class CardAbsentError(TransientError):
    """The card is not there now: it fell off the bus, was removed, or its driver is not loaded."""


class OutdatedProcessError(PermanentError):
    """What a backend has loaded into this process is of another version than the hardware's driver, and another process
    would load the right one: the plugin ends, so that it is started again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """One device of a claim, to be prepared."""

    claim: ClaimRef
    share: ShareId
    """The published device and, where several claims share it, the id of this claim's share."""
    partition: Partition
    admin_access: bool
    """The claim has admin access (KEP-5018): other claims may use the device, and preparing must not disturb them."""
    consumed_capacity: Mapping[str, Quantity]
    """The share's part of each capacity (KEP-5075), by name with or without the driver's domain."""

    def consumed(self, capacity: str) -> Quantity | None:
        """Return the share's part of a capacity; None: nothing is said of it."""
        names = (capacity, f"{self.share.id.driver}/{capacity}")
        return next((self.consumed_capacity[name] for name in names if name in self.consumed_capacity), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartition:
    """A partition that is on a card now, or a use of the card by a process outside of all partitions."""

    id: str
    """The hardware's own name for it, such as ``gi-3``: unique on its card now, the same in every survey while it
    exists, also after the plugin was restarted."""
    profile: str | None
    """The profile; None where the kind of hardware has none."""
    placement: Placement | None
    """The units that it covers; None: the whole card."""
    uuid: str = ""
    """The UUID by which programs address it; empty: it has none, or none yet."""
    in_use: bool | None = None
    """Whether a process uses it; None: the hardware does not report it."""
    is_static: bool = False
    """Whether an administrator has made it for claims to have: they get it as it is, and no call makes or removes
    it."""

    @property
    def is_use(self) -> bool:
        """Whether it is no object that a prepare makes, but a use of the card by processes."""
        return self.profile is None and self.in_use is True

    def matches(self, partition: Partition) -> bool:
        """Whether it has exactly the profile and the placement of ``partition``."""
        return (self.profile, self.placement) == (partition.profile, partition.placement)

    def overlaps(self, partition: Partition) -> bool:
        """Whether it has units in common with ``partition``, which is of the same card."""
        if self.placement is None or partition.placement is None:
            return True
        return self.placement.overlaps(partition.placement)

    def __str__(self) -> str:
        what = self.profile or self.id
        return f"{what} (whole card)" if self.placement is None else f"{what} at {self.placement.start}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSurvey:
    """What is on a card now, whatever made it, and what the card can do now."""

    card_uuid: str
    partitions: tuple[FoundPartition, ...] = ()
    no_whole: str = ""
    """The reason why the card cannot be allocated whole now, such as a mode that cannot be left; empty: it can."""
    no_partitions: str = ""
    """The reason why the card cannot be cut now, such as "MIG mode is pending a reset"; empty: it can. Partitions that
    are static can be allocated all the same."""
    no_static: str = ""
    """The reason why not even static partitions can be allocated now; empty: they can."""

    def find(self, partition: Partition) -> FoundPartition | None:
        """Return what is at the place of ``partition`` with its profile."""
        return next((found for found in self.partitions if found.matches(partition)), None)

    def find_restriction(self, partition: Partition) -> str:
        """Return why the card cannot be allocated as ``partition`` now; empty: it can, as far as others do not hold
        it.
        """
        if partition.is_whole:
            return self.no_whole
        is_there = any(found.is_static and found.matches(partition) for found in self.partitions)
        return self.no_static if is_there else self.no_partitions


class HealthState(StrEnum):
    """The health of hardware, with what follows for claims."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """The hardware works, but gets no new claims: errors that are corrected, repairs that are due."""
    LOST = "lost"
    """Workloads on the hardware cannot continue: it fell off the bus, is too hot, or its memory is corrupt."""


class UnhealthyState(NamedTuple):
    """The problem of a card or a partition."""

    state: HealthState
    """UNHEALTHY or LOST."""
    reason: str
    repair: CardRepair | None = None
    """What repairs the card; None: nothing, or it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A new health state of a card or of one partition, or a new reason for the same state."""

    card_uuid: str
    partition: Partition | None
    """None: the whole card."""
    state: HealthState
    reason: str
    """The reason, for people; at most 1024 bytes (KEP-4680)."""
    repair: CardRepair | None = None
    """What repairs the card; None: nothing, or it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChange:
    """Something else than health has changed on a card, by whomever: partitions, modes, its presence."""

    card_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryChange:
    """``discover`` returns something else now, without a change on a card: what may be loaded into it has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedCard:
    """A card of a backend's kind that is on the machine's bus, and that the backend does not list."""

    pci_address: str
    pci_id: str
    """The ids of vendor and device, such as ``10de:2330``."""
    driver: str
    """The kernel driver that has it; empty: none."""
    problem: str
    """Why the backend does not list it."""
    next_step: str
    """What to do if it should."""
    is_expected: bool = False
    """Whether it looks intended: the card is bound for a virtual machine, or its virtual functions have its memory."""

    def __str__(self) -> str:
        return f"{self.pci_address} ({self.pci_id}): {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """What a prepared device is used for at one moment. A field is None where the hardware cannot say: no guess."""

    memory_bytes: int | None = None
    """The bytes of memory that are in use."""
    processes: int | None = None
    """The number of processes that compute on it."""
    busy: float | None = None
    """The part of the time since the sample before in which it computed, 0 to 1; None also for the first sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSample:
    """What a card and its prepared devices are used for at one moment."""

    energy_mj: int | None = None
    """The energy in millijoules that the whole card has used since some time before; it begins again at 0 when the card
    is reset or its driver loaded. None: the card does not count it."""
    devices: tuple[DeviceSample, ...] = ()
    """One for each handle, in their order."""


class Journal(Protocol):
    """The notes of one device's prepare, which survive the death of the process.

    ``before`` is the plugin's own note; a backend uses other names. Notes are void in another boot, and vanish when the
    device has been released.
    """

    @property
    def notes(self) -> Mapping[str, Any]:
        """What was noted in this boot, by this or an earlier, interrupted call for the device: plain JSON."""
        ...

    def write(self, **notes: object) -> None:
        """Add or replace notes, and return once the successor of a killed process would find them.

        Raises CheckpointError when they cannot be written: then the hardware must not be changed further.
        """
        ...


class Backend(Protocol):
    """One vendor's hardware on one node.

    A method for a card raises HardwareBusyError when a later try may succeed, HardwareRefusedError when none can,
    HardwareConflictError when another program holds what is needed, and CardAbsentError when the card is not there.
    OutdatedProcessError of ``discover`` or ``wait_for_events`` ends the process, which is started again. Anything else
    that it raises fails that call alone. A call that does not return keeps its card from further calls until it does;
    other cards go on. After a while the process ends with it and is started again, once an hour at most.
    """

    name: str

    def open(self) -> None:
        """Connect to the hardware's driver. Called before any other method, and again after ``close``.

        Raises CardAbsentError while no driver is loaded: what claims have of its cards is then lost.

        Other processes may have the hardware open: ``kerf devices`` opens, discovers and surveys beside the plugin.
        """
        ...

    def close(self) -> None:
        """Disconnect, and end waits: a ``wait_for_events`` and, if possible, calls that hang. May be called twice."""
        ...

    def discover(self) -> Sequence[Card]:
        """Return the cards that are there now, in a stable order."""
        ...

    def survey(self, card_uuid: str) -> CardSurvey:
        """Return what is on the card now, read from the hardware, not remembered.

        All partitions are listed, whatever made them, half-made ones included, and what processes use outside of
        partitions. What can be replaced without an effect on a user is not listed: a loaded function that no process
        uses. Changes nothing. Raises CardAbsentError where the card is not there, also in a process that has never seen
        it: the pods that use the card are then evicted. Raises whatever else keeps it from reading all of the card: a
        survey that lacks something is taken for a card that lacks it.
        """
        ...

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        """Make the device ready: create the partition or load the function.

        ``found`` is what an interrupted prepare of this device left, or what another share of it uses
        (``partition.shared``, KEP-5075): finish it where it is incomplete, and create no second one. It may be a static
        partition: hand it out as it is. None: create the partition. What a later call needs to know of a half-made one
        goes into the journal before the next call to the hardware. On return all is done; on an error nothing need be
        undone, because ``abandon`` follows.

        HardwareConflictError says that another program holds the place and that this call has created nothing there;
        the plugin then takes what it finds there for another's. With admin access (``device.admin_access``) create and
        change nothing, and return a handle for ``edits``; such a handle is never unprepared.
        """
        ...

    def unprepare(self, handle: Handle) -> None:
        """Remove what ``prepare`` made, never a static partition; HardwareHeldError says which process uses it.

        What is gone already is success, where a list of what is on the card, which has succeeded, does not have it. An
        error of the hardware proves nothing: raise it, and the call comes again. Ids and UUIDs are compared first, so
        that another's partition in the same place is left alone. Raises CardAbsentError while the card is away, because
        then it is unknown.
        """
        ...

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        """Remove what a ``prepare`` of ``device`` that failed or never returned has left.

        ``found`` is that partition, complete or half made, or a static one, which stays; None: there is none to remove,
        but other things may be left, such as slots in the middle of a load. Nothing left is success. Raises
        CardAbsentError.
        """
        ...

    def edits(self, handle: Handle) -> ContainerEdits:
        """Return the edits of the container. Pure and quick: it runs in no thread, also when files are written
        again.
        """
        ...

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        """Wait at most ``timeout_s`` seconds for changes, and return them; none is no error.

        The first call after ``open`` returns at once with everything that is not healthy. A call that raises has
        reported nothing: the next one reports it again.
        """
        ...


@runtime_checkable
class RequestEditor(Protocol):
    """What a Backend may have besides: edits that a container gets once for all devices of a request."""

    def request_edits(self, handles: Sequence[Handle]) -> ContainerEdits:
        """Return these edits for the handles of the request's devices. Pure and quick, as ``Backend.edits``."""
        ...


@runtime_checkable
class NumberedBackend(Protocol):
    """A backend whose device nodes have numbers of the kernel, such as ``/dev/dri/card0``: these are no identity, also
    within a boot. A driver that is bound again may give a card's number to another card.
    """

    def renumber(self, handle: Handle) -> Handle:
        """Return ``handle`` with the device nodes that its device has now.

        Reads the hardware, and changes nothing. Raises CardAbsentError, and whatever keeps it from being read.
        """
        ...


@runtime_checkable
class RestoringBackend(Protocol):
    """A backend that sets up more for a device than surveys show, in files that another program may remove."""

    def restore(self, handle: Handle) -> bool:
        """Set up again what ``prepare`` has set up beside the device and is gone; returns whether there was any.

        The device itself stays as it is. Raises what keeps it from being read or set up.
        """
        ...


@runtime_checkable
class SampledBackend(Protocol):
    """A backend that can say what its cards are used for.

    What it keeps between two samples, such as the counters of the first, is only for the second.
    """

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        """Return what the card, and the devices of ``handles`` on it, are used for now. Changes nothing.

        Called beside all other calls, also those for the same card, in one thread that does only this, every some
        seconds. A device that is gone has an empty DeviceSample. Raises CardAbsentError when the card is not there,
        and whatever else keeps it from being read: the next call comes all the same.
        """
        ...


@runtime_checkable
class DescribedBackend(Protocol):
    """A backend whose hardware administrators describe by objects of the cluster (``Family.description_kinds``)."""

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take these manifests, which are all there are, in place of those before; ``discover`` follows.

        They are not validated. Called before the first ``discover`` where they can be read by then, and after each
        change; returns at once, and runs in no thread.
        """
        ...


@runtime_checkable
class InstallingBackend(Protocol):
    """A backend that brings files to the host when it is opened, such as a program that containers run."""

    def look_only(self) -> None:
        """Bring none from now on: another process of this node prepares. Called before ``open``."""
        ...


@runtime_checkable
class MaintainingBackend(Protocol):
    """A backend that can reset a card of which nothing is prepared or in use, or switch its MIG mode.

    While one of these calls runs, and until the card has been verified, the plugin prepares nothing of the card.
    HardwareBusyError says that nothing was changed and a later try may succeed; after any other error the card is not
    touched again. A call that the process did not survive is never repeated: ``end_act`` follows.
    """

    def find_card_holders(self, card_uuid: str) -> Sequence[str]:
        """Return the processes outside of the plugin that have the card open, each as text for people, as far as they
        can be seen. Changes nothing. Raises CardAbsentError, and whatever keeps it from being read.
        """
        ...

    def reset_card(self, card_uuid: str, journal: Journal) -> str:
        """Reset the card, and return what the hardware's program said. Raises HardwareBusyError while any process has
        it open, HardwareRefusedError when it cannot be reset, and CardAbsentError.

        What ``end_act`` is to restore goes into the journal before it is changed.
        """
        ...

    def set_mig_mode(self, card_uuid: str, is_on: bool) -> str:
        """Switch MIG mode on or off, also where that resets the card, and return what was done.

        Raises HardwareBusyError while any process has it open, HardwareRefusedError when it cannot be switched, and
        CardAbsentError.
        """
        ...

    def end_act(self, card_uuid: str, journal: Journal) -> None:
        """Restore what ``reset_card`` has changed for its own sake, such as persistence mode; nothing to restore is
        success. Called after each act, and after a start when the process did not survive it.
        """
        ...


@runtime_checkable
class BusReader(Protocol):
    """A backend that can say which cards of its kind the machine has on its bus, whichever driver has them."""

    def list_unlisted(self, cards: Sequence[Card]) -> Sequence[UnlistedCard]:
        """Return the cards on the bus that are none of ``cards``, which ``discover`` has returned.

        May be called when ``open`` or ``discover`` has failed. Raises HardwareBusyError when the bus cannot be read.
        """
        ...
