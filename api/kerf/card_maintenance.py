"""``kerf.dev/v1alpha1`` CardMaintenance: a card of a node gets no new claims, and the pods that hold it are evicted.

An administrator writes the spec (``kerf drain``), the kubelet plugin of the node taints the card's devices while the
object exists, and ``kerf controller --reclaim`` evicts pods and writes the status. Where ``then`` says what is done
with the free card, the plugin does it, verifies the card, writes ``status.work``, and removes the taint. Deleting the
object ends the maintenance (``kerf undrain``). Cluster-scoped; docs/one-card.md.
"""

import hashlib
import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.kerf.scalar_types import NodeName
from kerf_dra.api.kerf.v1alpha1 import GROUP, VERSION, Strict
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Condition, Object
from kerf_dra.api.wire import Kind, identity_kind

MAX_HOLDERS: Final = 32
"""The most holders in a status: a card has seven partitions, and each of them a few pods that share it; ``holderCount``
counts those beyond it, too."""
_MAX_NAME: Final = 253
"""The longest name of an object, in characters (a DNS subdomain)."""
_MAX_LABEL: Final = 63
"""The longest part of such a name between dots (a DNS label)."""

CardId: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9A-Za-z]([-0-9A-Za-z_.:]{0,126}[0-9A-Za-z])?$",
        max_length=128,  # UUIDs of vendors' libraries have a prefix such as GPU-
        title="UUID of a card, or its PCI address such as 0000:3b:00.0",
    ),
]
MaintenanceReason: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\x00-\x1f\x7f]*$",
        max_length=256,  # a sentence, and the address of a ticket
        title="text of one line",
    ),
]
EvictionLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2_592_000)]
"""Seconds; at most 30 days."""
_HOOK_NAME: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A DNS label: no path can be written with it."""

HookName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=_HOOK_NAME,
        max_length=_MAX_LABEL,
        title="name of a program in the node's folder of hooks",
    ),
]
MaintenancePhase: TypeAlias = Literal[
    "Pending", "Withheld", "Evicting", "Free", "Acting", "Verifying", "Returned", "Stuck"
]
FollowingAct: TypeAlias = Literal["None", "Reset", "MigOn", "MigOff", "Hook"]
WorkState: TypeAlias = Literal["Waiting", "Acting", "Verifying", "Done", "Failed"]


class CardMaintenanceSpec(Strict):
    """The card, and how its pods may be evicted."""

    node_name: NodeName
    """The node of the card."""
    card: CardId
    """The card: the UUID or the PCI address with which its devices are published (attributes ``uuid`` and
    ``resource.kubernetes.io/pciBusID``). A name such as gpu-0 is no identity: another card may have it after a boot."""
    reason: MaintenanceReason = ""
    """Why: people read it in ``kerf why``, in events and in the status."""
    then: FollowingAct = "None"
    """What its node does with the card once it is free. None: nothing; an administrator works on it, and deletes the
    object then. Reset: the card is reset. MigOn, MigOff: MIG mode is switched. Hook: a program of the node runs. After
    each of these the card is verified, and gets claims again."""
    hook: HookName | None = None
    """The program that ``Hook`` runs: its name in the folder of hooks of the node."""
    evict_bare_pods: bool = False
    """Whether pods are evicted that no controller creates again."""
    deadline_seconds: EvictionLimit | None = None
    """How long after its creation pods are evicted, in seconds; after that the phase is Stuck. Unset: without limit."""


class CardHolder(Value):
    """A pod that holds some of the card, or a claim that no pod uses."""

    claim: str
    """The claim, as ``namespace/name``."""
    pod: str = ""
    """The pod, as ``namespace/name``; empty: no pod uses the claim."""
    pod_uid: str = msgspec.field(default="", name="podUID")
    """The pod's UID."""
    verdict: str
    """What is done about it: Evict, Ending, or why it is not evicted: AdminAccess, Bare, Protected, SharedClaim,
    Static, System, Tolerates."""
    message: str = ""
    """The same for people, or the last answer to its eviction."""


class MaintenanceWork(Value):
    """What the node has done with a free card. The kubelet plugin of the node alone writes it."""

    state: WorkState
    """Waiting: it cannot begin yet, and the message says why. Acting: the act runs. Verifying: it has ended, and the
    card is verified. Done: the card is well, and gets claims again. Failed: nothing more is done; the card stays
    withheld."""
    message: str = ""
    """The same for people: what keeps it from beginning, what the act has said, or what to do."""
    started_at: str | None = None
    """When the act began (RFC 3339); unset: it has not."""
    finished_at: str | None = None
    """When it was Done or Failed (RFC 3339); unset: it is neither."""
    attempts: int = 0
    """How many verifications have failed."""
    observed_generation: int
    """The generation of the spec for which it is done; that of another one does not count."""


class CardMaintenanceStatus(Value):
    """The report of ``kerf controller --reclaim``; without it the card is withheld only, and ``work`` of the node."""

    observed_generation: int | None = None
    """The generation of the spec from which the status was computed."""
    phase: MaintenancePhase | None = None
    """Pending: the node has not withheld the card yet. Withheld: it gets no new claims, and other cards are drained
    first. Evicting: pods that hold it are being evicted. Free: nothing holds it. Acting, Verifying: its node does what
    ``then`` says, and verifies the card. Returned: that is done, and the card gets claims again. Stuck: something holds
    it that is not evicted, the deadline is over, or its node cannot go on."""
    message: str = ""
    """The phase for people."""
    holder_count: int = 0
    """How many pods and unused claims hold the card."""
    holders: Annotated[tuple[CardHolder, ...], msgspec.Meta(max_length=MAX_HOLDERS)] = ()
    """Who holds the card: the first 32."""
    evicted: int = 0
    """How many evictions the API server has accepted."""
    conditions: tuple[Condition, ...] = ()
    """Accepted: the spec is valid and names a card that the node publishes. Withheld: all devices of the card are
    tainted. Free: nothing holds the card, so its node may do what ``then`` says."""
    work: MaintenanceWork | None = None
    """What the node has done with the free card; unset: nothing."""


class CardMaintenance(Object, forbid_unknown_fields=True):
    """A card that is taken from pods, until the object is deleted (cluster-scoped)."""

    spec: CardMaintenanceSpec
    """The card, and how its pods may be evicted."""
    status: CardMaintenanceStatus = CardMaintenanceStatus()
    """How far it is."""


class CardMaintenanceObject(Object):
    """A CardMaintenance with an undecoded spec, so that an invalid one does not make its list unreadable."""

    spec: JsonObject = {}
    status: CardMaintenanceStatus = CardMaintenanceStatus()

    def __post_init__(self) -> None:
        check_levels(self.spec)


CARD_MAINTENANCES: Final[Kind[CardMaintenanceObject]] = identity_kind(
    CardMaintenanceObject,
    group=GROUP,
    version=VERSION,
    plural="cardmaintenances",
    namespaced=False,
    kind="CardMaintenance",
)


def is_hook_name(name: str) -> bool:
    """Whether a CardMaintenance may name a hook so.

    >>> is_hook_name("swap-fan"), is_hook_name("../sh")
    (True, False)
    """
    return re.fullmatch(_HOOK_NAME, name) is not None


def maintenance_name(node: str, card: str) -> str:
    """Return the name of the object by which ``kerf drain`` drains a card: one for each, so that it is not drained
    twice. ``card`` is its UUID.

    >>> maintenance_name("node-1", "GPU-0A")
    'node-1.gpu-0a'
    """
    label = "".join(each if each.isascii() and each.isalnum() else "-" for each in card.lower()).strip("-")
    name = f"{node}.{label}"
    if len(label) <= _MAX_LABEL and len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(f"{node}/{card.casefold()}".encode()).hexdigest()[:32]
    return f"card-{digest}"


def find_work(generation: int, status: CardMaintenanceStatus) -> MaintenanceWork | None:
    """Return the work of ``status`` if it is for this generation of the spec."""
    return status.work if status.work is not None and status.work.observed_generation == generation else None


def is_named_card(card: str, uuid: str, pci_bus_id: str) -> bool:
    """Whether ``card`` of a spec is the card with this UUID and PCI address; an empty one names none.

    >>> is_named_card("gpu-0a", "GPU-0A", "0000:3b:00.0"), is_named_card("0000:3B:00.0", "GPU-0A", "0000:3b:00.0")
    (True, True)
    """
    name = card.casefold()
    return bool(name) and name in (uuid.casefold(), pci_bus_id.casefold())
