"""FPGA shells: their layouts, their slots, and the functions that are built for them."""

from dataclasses import dataclass

from kerf_dra.driver.partitions.geometry import Layout, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """FPGA resources of a slot or some slots (counts)."""

    lut: int = 0
    ff: int = 0
    bram: int = 0
    dsp: int = 0

    def __add__(self, other: "Logic") -> "Logic":
        return Logic(
            lut=self.lut + other.lut, ff=self.ff + other.ff, bram=self.bram + other.bram, dsp=self.dsp + other.dsp
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that can be loaded into one layout of a shell, with one image for each placement it was built for."""

    name: str
    version: str
    afu_id: str
    """The UUID that the hardware reports once the function runs."""
    placements: tuple[Placement, ...]
    load_s: float
    """The load time in seconds that the image's vendor states; simulated hardware takes exactly this long."""
    digests: tuple[str, ...] = ()
    """The SHA-256 of the image's file for each of ``placements``; empty: there are no files."""
    compute_units: int = 0
    """The compute units of the image, which claims may share; 0: it is for one claim."""

    def digest(self, placement: Placement) -> str:
        """Return the SHA-256 of the file for ``placement``; empty: there is none."""
        return dict(zip(self.placements, self.digests, strict=False)).get(placement, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLayout:
    """One way in which a card is divided into slots: a static design with an interface of its own."""

    name: str = ""
    """The name; empty: it is the shell's first."""
    uuid: str
    """The interface UUID: an image with another parent must not be loaded."""
    slots: tuple[Logic, ...]
    """The logic of each slot, by the number of the slot; without partial reconfiguration that of the card."""
    load_s: float = 0.0
    """How many seconds it takes to load the layout in place of another one."""
    is_undivided: bool = False
    """Whether the card has no partial reconfiguration in this layout: a function is loaded into the whole card."""

    def logic(self, placement: Placement) -> Logic:
        return sum((self.slots[slot] for slot in placement.units), Logic())

    @property
    def everything(self) -> Placement:
        """All its slots."""
        return Placement(0, len(self.slots), layout=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The static design of an FPGA: its slots and the functions built for it; or several, of which it has one at a
    time.
    """

    name: str
    uuid: str
    """The interface UUID of the first layout."""
    family: str
    slots: tuple[Logic, ...]
    """The logic of each slot of the first layout, as ``ShellLayout.slots``."""
    functions: tuple[Function, ...]
    """The functions of all layouts."""
    load_s: float = 0.0
    """How many seconds it takes to load the first layout in place of another one."""
    is_undivided: bool = False
    """Whether the card has no partial reconfiguration in the first layout."""
    further_layouts: tuple[ShellLayout, ...] = ()

    @property
    def layouts(self) -> tuple[ShellLayout, ...]:
        """All layouts: the first one has no name."""
        first = ShellLayout(uuid=self.uuid, slots=self.slots, load_s=self.load_s, is_undivided=self.is_undivided)
        return (first, *self.further_layouts)

    @property
    def card_layouts(self) -> tuple[Layout, ...]:
        """The layouts as the geometry of a card has them."""
        return tuple(Layout(layout.name, len(layout.slots)) for layout in self.layouts)

    def layout(self, name: str) -> ShellLayout:
        """Return the layout of this name. Raises KeyError when there is none."""
        return {layout.name: layout for layout in self.layouts}[name]

    def logic(self, placement: Placement) -> Logic:
        """Return the logic of some slots of one layout."""
        return self.layout(placement.layout).logic(placement)

    def function(self, name: str) -> Function | None:
        """Return the function, that of the first layout that has it; None: there is none."""
        return next((function for function in self.functions if function.name == name), None)

    def find_whole(self, function: str, layout: str) -> Placement:
        """Return all slots of ``layout`` if the function has an image there, else of the first layout where it has;
        those of ``layout`` where none has. Raises KeyError when there is no such layout.
        """
        having = {image.layout for one in self.functions if one.name == function for image in one.placements}
        names = [layout, *(each.name for each in self.layouts)]
        return self.layout(next((name for name in names if name in having), layout)).everything

    def find_function(self, name: str, placement: Placement) -> Function | None:
        """Return the function with an image for ``placement``; None: there is none."""
        return next((one for one in self.functions if one.name == name and placement in one.placements), None)
