"""FPGA shells: their slots, and the functions that are built for them."""

from dataclasses import dataclass

from driver.partitions.geometry import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """FPGA resources of a slot or a run of slots (counts)."""

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
    """A function that can be loaded into a shell, with one image for each placement that it was built for."""

    name: str
    version: str
    afu_id: str
    """The UUID that the hardware reports once the function runs."""
    placements: tuple[Placement, ...]
    load_s: float
    """The load time in seconds that the image's vendor states; simulated hardware takes exactly this long."""
    digests: tuple[str, ...] = ()
    """The SHA-256 of the image's file for each of ``placements``; empty: there are no files."""

    def digest(self, placement: Placement) -> str:
        """Return the SHA-256 of the file for ``placement``; empty: there is none."""
        return dict(zip(self.placements, self.digests, strict=False)).get(placement, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The static design of an FPGA: its slots and the functions built for it."""

    name: str
    uuid: str
    """The interface UUID: an image with another parent must not be loaded."""
    family: str
    slots: tuple[Logic, ...]
    """The logic of each slot, by the number of the slot."""
    functions: tuple[Function, ...]

    def function(self, name: str) -> Function | None:
        return next((function for function in self.functions if function.name == name), None)

    def logic(self, placement: Placement) -> Logic:
        return sum((self.slots[slot] for slot in placement.units), Logic())
