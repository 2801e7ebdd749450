"""The base designs of a board as layouts of its card: which ones can be used, and what images they have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kerf_dra.driver.families.fpga.descriptions import DescribedShell, Descriptions, ImageReference, select_layouts
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import leave_out_images
from kerf_dra.driver.kubeletplugin.backends.slots.images import PackageImages
from kerf_dra.driver.kubeletplugin.backends.slots.packages import BaseDesign


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLayout:
    """A base design as a layout."""

    name: str = ""
    """The layout's name; empty: it is the first, or the only one."""
    base: BaseDesign
    described: DescribedShell | None
    """What is said of it, as of a shell that has no other layout; None: nothing is said any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLayouts:
    """What a board can be loaded with."""

    shell: Shell
    layouts: Mapping[str, BoardLayout]
    """The layouts by name, the first one first."""
    refused: Mapping[ImageReference, ImageRefusal]
    """The images that cannot be loaded, with the reasons: they are left out of the rest."""

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the layouts by interface UUID; the first, or the only one, has none."""
        return {layout.base.interface_uuid: name for name, layout in self.layouts.items() if len(self.layouts) > 1}


class _Candidate(NamedTuple):
    """A base design of whose interface a shell is described, and the name of the layout that it would be."""

    name: str
    base: BaseDesign
    described: DescribedShell


def choose_layouts(
    bases: Iterable[BaseDesign], descriptions: Descriptions, images: PackageImages, where: str, problems: list[str]
) -> BoardLayouts | None:
    """Return the layouts that the base designs of a board are; None: there is none that can be used.

    Several are of one shell, its first layout among them. What keeps base designs, found in ``where``, from being used
    goes into ``problems``, also that there is none.
    """
    found = [
        _Candidate(_find_name(descriptions, base), base, described)
        for base in bases
        if (described := _find_described(descriptions, base, where, problems)) is not None
    ]
    if len(found) == 1:
        found = [found[0]._replace(name="")]
    elif fault := _find_fault(found):
        problems.append(fault)
        return None
    if not found:
        return None
    refused: dict[ImageReference, ImageRefusal] = {}
    for candidate in found:
        refused |= _find_refused(candidate, images)
    usable = [
        one._replace(described=leave_out_images(one.described, refused))
        for one in sorted(found, key=lambda one: one.name)
    ]
    problems += dict.fromkeys(refusal.message for refusal in refused.values())
    return BoardLayouts(
        shell=_join(descriptions, {one.name: one.described for one in usable}),
        layouts={one.name: BoardLayout(name=one.name, base=one.base, described=one.described) for one in usable},
        refused=refused,
    )


def _find_name(descriptions: Descriptions, base: BaseDesign) -> str:
    names = (one.name for card in descriptions.cards for one in card.layouts if one.uuid == base.interface_uuid)
    return next(names, "")


def _find_described(
    descriptions: Descriptions, base: BaseDesign, where: str, problems: list[str]
) -> DescribedShell | None:
    described = descriptions.shells.get(base.interface_uuid)
    if described is None:
        problems.append(
            f"base design {base.path} has the interface {base.interface_uuid}, but neither {where} nor a "
            "FpgaShell of the cluster describes its shell"
        )
        return None
    shell = described.shell
    if shell.is_undivided != base.is_flat:
        has, needs = ("no slots", "resources") if base.is_flat else (f"{base.slots} slots", "slots")
        problems.append(
            f"base design {base.path} has {has}, but its shell {shell.name} is described otherwise: give it {needs}"
        )
        return None
    if len(shell.slots) != base.slots:
        problems.append(
            f"base design {base.path} has {base.slots} slots, but its shell {shell.name} is described with "
            f"{len(shell.slots)}"
        )
        return None
    return described


def _find_fault(found: Sequence[_Candidate]) -> str:
    """Return why several base designs cannot be layouts of one card; empty: they can."""
    names = ", ".join(one.base.path for one in found)
    shells = {one.described.shell.name for one in found}
    layouts = {one.name for one in found}
    choose = "name one as base in the configuration"
    if found and (len(shells) > 1 or len(layouts) < len(found) or "" not in layouts):
        return (
            f"the shells of several base designs are described, and are not one shell with its first layout and "
            f"further ones: {names}; {choose}"
        )
    if len({one.base.name for one in found}) < len(found):
        return f"base designs that are layouts of one shell have one name: {names}; give each its own, or {choose}"
    for one in found:
        if one.base.is_loaded_before:
            return (
                f"base design {one.base.path} is not loaded by dfx-mgrd (load_base_design of shell.json), so it cannot "
                f"be exchanged for another layout: {choose}"
            )
    return ""


def _find_refused(candidate: _Candidate, images: PackageImages) -> dict[ImageReference, ImageRefusal]:
    """Return the images that cannot be loaded, with the reasons."""
    refused: dict[ImageReference, ImageRefusal] = {}
    for (_, slots), image in candidate.described.images.items():
        if slots.size > 1:
            message = f"image {image.name} is for several slots at once: a package of dfx-mgr is for one"
            refused[image] = ImageRefusal("SeveralSlots", message)
        elif (fault := images.find_fault(image, candidate.base, slots.start)) is not None:
            refused[image] = fault
    for slot, image in candidate.described.blanks.items():
        if (fault := images.find_fault(image, candidate.base, slot)) is not None:
            refused[image] = fault
    return refused


def _join(descriptions: Descriptions, described: Mapping[str, DescribedShell]) -> Shell:
    first = described[""].shell
    if len(described) == 1:
        return first
    return select_layouts(next(card for card in descriptions.cards if card.uuid == first.uuid), described)
