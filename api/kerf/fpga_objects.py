"""``kerf.dev/v1alpha1`` FpgaShell and FpgaImage: what an administrator says of FPGA cards and of what they may load.

A shell is the static design of a card, which the card names by its interface UUID; an image is one function for one
such interface, with a file for each set of slots that it was built for. Both are cluster-scoped objects, and the same
documents may be files of a node (docs/fpga.md).
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from kerf_dra.api.kerf.scalar_types import DNS_LABEL, IDENTIFIER, DeviceWord
from kerf_dra.api.kerf.v1alpha1 import GROUP, VERSION, Strict
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Condition, Object
from kerf_dra.api.wire import Kind, identity_kind

MAX_SLOTS: Final = 16
"""The most slots of a card: twice what a DFL card can have, whose port ids have three bits (FME_PR_CTRL, Linux
``drivers/fpga/dfl-fme-mgr.c``), and half of the counters of a counter set."""
MAX_LAYOUTS: Final = 8
"""The most layouts of a card: more than there are ways to divide one of MAX_SLOTS slots by halves."""
MAX_COMPUTE_UNITS: Final = 1024
"""The most compute units of an image: far more than fit into a card; more is a typing error."""
MAX_BYTES: Final = 64 * 1024
"""The most bytes of a document in a file: far more than one needs."""

Uuid: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
        max_length=36,  # 32 digits and 4 dashes
        title="UUID such as 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55",
    ),
]
FunctionName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=DNS_LABEL,
        max_length=40,  # a part of device names, which have 63 characters with that of the card and the slot's number
        title="name of a function such as aes-gcm (a DNS label: lower-case letters, digits, '-'; at most 40)",
    ),
]
Sha256: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern="^[0-9a-f]{64}$",
        max_length=64,  # 256 bits in hexadecimal digits
        title="SHA-256 in 64 lower-case hexadecimal digits",
    ),
]
FilePath: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*$",
        max_length=255,  # far longer than any path below a folder of images
        title="path below the folder of images, such as aes-gcm.gbs (no part of it begins with a dot)",
    ),
]
HttpsUrl: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        # a host and a port, and no user: credentials have no place in an object that every user may read
        pattern=r"^https://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?/[!-~]*$",
        max_length=1024,  # long enough for what object stores sign
        title="URL such as https://images.example.com/aes-gcm.gbs, without a user",
    ),
]
Signature: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9+/]{86}==$",
        max_length=88,  # 64 bytes in base64
        title="ed25519 signature in base64 (88 characters)",
    ),
]
NamespaceName: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=DNS_LABEL, max_length=63, title="name of a namespace (a DNS label)")
]
ParameterName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=IDENTIFIER,
        max_length=64,  # a part of the names of environment variables
        title="name of a parameter (a C identifier; at most 64 characters)",
    ),
]
ParameterValue: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^[ -~]*$", max_length=256, title="value in printable ASCII")
]
LayoutName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern="^[a-z][a-z0-9]*$",
        max_length=16,  # a part of device names, and without dashes so that no two of them are alike
        title="name of a layout such as halves (lower-case letters and digits; at most 16)",
    ),
]
Slot: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_SLOTS - 1)]
SlotSet: TypeAlias = Annotated[tuple[Slot, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]
LogicCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
LoadSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=3600)]
"""At most the time that a FpgaConfig may allow for a load."""


class FpgaFile(Strict):
    """A file with an image, and the slots that it was built for."""

    sha256: Sha256
    """The SHA-256 of the file."""
    slots: Annotated[tuple[SlotSet, ...], msgspec.Meta(min_length=1, max_length=64)] = ()
    """The sets of slots that the file may be loaded into, such as ``[[0], [1]]`` for either of two, ``[[0, 1]]`` for
    both at once; unset: the whole card, which has no slots."""
    file: FilePath | None = None
    """The path of the file below the folder of images of each node; excludes ``url``."""
    url: HttpsUrl | None = None
    """Where nodes fetch the file; excludes ``file``."""
    signature: Signature | None = None
    """The ed25519 signature of what docs/fpga.md describes, which nodes with keys demand."""


Files: TypeAlias = Annotated[tuple[FpgaFile, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]


class FpgaSlot(Strict):
    """The logic of a slot."""

    lut: LogicCount = 0
    """Look-up tables."""
    ff: LogicCount = 0
    """Flip-flops."""
    bram: LogicCount = 0
    """Block RAMs."""
    dsp: LogicCount = 0
    """DSP blocks."""


Slots: TypeAlias = Annotated[tuple[FpgaSlot, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]


class FpgaBlank(Strict):
    """An image that does nothing, which a slot gets when its claim ends."""

    afu_id: Uuid = msgspec.field(name="afuID")
    """The id that a slot reports when the image is loaded."""
    files: Files
    """The image's files."""
    load_seconds: LoadSeconds = 0.0
    """How long a load takes."""


class FpgaLayout(Strict):
    """Another static design that the cards can have in place of the first, with slots of its own."""

    name: LayoutName
    """The name, which is the attribute ``layout`` of its devices."""
    interface_uuid: Uuid = msgspec.field(name="interfaceUUID")
    """The interface that cards with this layout report, and that images are built for."""
    slots: Slots = ()
    """The slots, by their numbers; excludes ``resources``."""
    resources: FpgaSlot | None = None
    """The logic of the card, if this layout has no partial reconfiguration; excludes ``slots``."""
    blank: FpgaBlank | None = None
    """What a slot gets when its claim ends; unset: its function stays."""
    load_seconds: LoadSeconds = 0.0
    """How long it takes to load this layout."""


class FpgaShellSpec(Strict):
    """The static design of FPGA cards."""

    interface_uuid: Uuid = msgspec.field(name="interfaceUUID")
    """The interface that its cards report, and that images are built for."""
    slots: Slots = ()
    """The slots, by their numbers; excludes ``resources``."""
    resources: FpgaSlot | None = None
    """The logic of the card, if it has no partial reconfiguration: a function is loaded into all of it; excludes
    ``slots``."""
    layouts: Annotated[tuple[FpgaLayout, ...], msgspec.Meta(min_length=1, max_length=MAX_LAYOUTS - 1)] = ()
    """Other designs that Kerf may load in place of this one, on cards of a backend that can: a card has one at a time,
    and claims of one layout keep those of the others away."""
    load_seconds: LoadSeconds = 0.0
    """How long it takes to load this design in place of another one."""
    family: Annotated[str, msgspec.Meta(pattern=r"^[ -~]*$", max_length=64, title="text in printable ASCII")] = ""
    """The FPGA's family, which is the attribute ``architecture``."""
    blank: FpgaBlank | None = None
    """What a slot gets when its claim ends; unset: its function stays."""


class FpgaImageSpec(Strict):
    """A function for the cards with one interface."""

    function: FunctionName
    """The name that classes and claims ask for."""
    interface_uuid: Uuid = msgspec.field(name="interfaceUUID")
    """The interface that the image was built for: that of its shell."""
    afu_id: Uuid = msgspec.field(name="afuID")
    """The id that a slot reports when the image is loaded: each build has its own."""
    files: Files
    """The image's files."""
    load_seconds: LoadSeconds
    """How long a load takes, as the image's maker says."""
    compute_units: Annotated[int, msgspec.Meta(ge=0, le=MAX_COMPUTE_UNITS)] = 0
    """The compute units of the image that claims of a class with ``allocation: Shared`` divide; 0: the image is for one
    claim at a time."""
    version: DeviceWord = "0"
    """The version of the image."""
    parameters: Annotated[dict[ParameterName, ParameterValue], msgspec.Meta(max_length=32)] = {}
    """What programs need to use the function; containers get it as variables."""
    namespaces: Annotated[tuple[NamespaceName, ...], msgspec.Meta(max_length=64)] = ()
    """The namespaces whose claims may use the function; empty: all."""


class FpgaNodes(Value):
    """The nodes that an object concerns."""

    total: int
    """The number of nodes with cards of its interface."""
    fetched: int = 0
    """Of those, the number of nodes on all of whose cards the function is available."""


class FpgaStatus(Value):
    """The controller's report on the object."""

    observed_generation: int | None = None
    """The generation of the spec from which the status was computed."""
    conditions: tuple[Condition, ...] = ()
    """Verified: the spec is valid, and contradicts no other. Fetched: nodes have the files and have checked them.
    Refused: nodes refuse them, with the reason."""
    nodes: FpgaNodes | None = None
    """The nodes with cards of its interface."""


class FpgaShell(Object, forbid_unknown_fields=True):
    """The static design of FPGA cards, which an administrator describes (cluster-scoped)."""

    spec: FpgaShellSpec
    """The design."""
    status: FpgaStatus = FpgaStatus()
    """The controller's report."""


class FpgaImage(Object, forbid_unknown_fields=True):
    """A function that FPGA cards may load, which an administrator registers (cluster-scoped)."""

    spec: FpgaImageSpec
    """The function and its files."""
    status: FpgaStatus = FpgaStatus()
    """The controller's report."""


class _FpgaObject(Object):
    """An object with an undecoded spec, so that an invalid one does not make others of its list unreadable."""

    spec: JsonObject = {}
    status: FpgaStatus = FpgaStatus()

    def __post_init__(self) -> None:
        check_levels(self.spec)


class FpgaShellObject(_FpgaObject):
    """A FpgaShell with an undecoded spec."""


class FpgaImageObject(_FpgaObject):
    """A FpgaImage with an undecoded spec."""


FPGA_SHELLS: Final[Kind[FpgaShellObject]] = identity_kind(
    FpgaShellObject, group=GROUP, version=VERSION, plural="fpgashells", namespaced=False, kind="FpgaShell"
)
FPGA_IMAGES: Final[Kind[FpgaImageObject]] = identity_kind(
    FpgaImageObject, group=GROUP, version=VERSION, plural="fpgaimages", namespaced=False, kind="FpgaImage"
)
