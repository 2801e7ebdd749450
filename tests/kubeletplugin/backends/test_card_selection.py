"""Cards that an administrator includes and excludes: by identity, never by an index."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kerf_dra.driver.kubeletplugin.backends.card_selection import CardEntry, CardSelection, InvalidCardIdError
from kerf_dra.driver.kubeletplugin.backends.registry import (
    BackendChoice,
    BackendUnavailableError,
    choose_families,
    select_cards,
)
from tests.fakes.cards import gpu

FIRST, SECOND = (
    replace(gpu(index), uuid=f"GPU-{index}e78e68c0-0000-4000-8000-000000000000", pci_bus_id=f"0000:{index}b:00.0")
    for index in (1, 2)
)


@pytest.mark.parametrize(
    ("include", "exclude", "kept_out"),
    [
        ((), (), ()),
        ((), (FIRST.uuid,), (FIRST,)),
        ((), (FIRST.uuid.upper(),), (FIRST,)),
        ((), ("00000000:1B:00.0", "2b:00.0"), (FIRST, SECOND)),
        ((SECOND.pci_bus_id,), (), (FIRST,)),
        ((FIRST.uuid, SECOND.uuid), (), ()),
        ((FIRST.uuid,), (FIRST.pci_bus_id,), (FIRST, SECOND)),
        (("GPU-of-another-node",), (), (FIRST, SECOND)),
    ],
)
def test_cards_are_kept_out_by_uuid_or_pci_address(
    include: Sequence[str], exclude: Sequence[str], kept_out: Sequence[object]
) -> None:
    selection = CardSelection.of(include, exclude)
    assert [card for card in (FIRST, SECOND) if selection.find_reason(card)] == list(kept_out)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0", "an index is no identity"),
        ("gpu-0", "an index is no identity"),
        ("GPU:1", "it is no PCI address"),
        ("card1", "an index is no identity"),
        ("renderD128", "an index is no identity"),
        ("/dev/nvidia0", "neither a UUID nor a PCI address"),
        ("MIG-1b2c", "the UUID of a MIG device"),
        ("0000:3b:00", "it is no PCI address"),
        ("0000:3b:00.9", "it is no PCI address"),
        ("", "neither a UUID nor a PCI address"),
        ("GPU 1", "neither a UUID nor a PCI address"),
        ("GPU-*", "neither a UUID nor a PCI address"),
        ("x" * 200, "neither a UUID nor a PCI address"),
    ],
)
def test_what_names_no_card_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidCardIdError, match=reason):
        CardSelection.of(exclude=[text])


def test_a_card_that_is_both_included_and_excluded_is_refused() -> None:
    with pytest.raises(InvalidCardIdError, match="both included and excluded"):
        CardSelection.of(["3b:00.0"], ["0000:3B:00.0"])


def test_entries_that_are_no_cards_are_known_as_they_were_written() -> None:
    selection = CardSelection.of([FIRST.uuid, "GPU-Typo"], ["9b:00.0"])
    assert selection.list_unknown([FIRST, SECOND]) == ["GPU-Typo", "9b:00.0"]


def test_an_entry_that_is_nearly_a_card_names_that() -> None:
    """An Alveo card is its user function; lspci shows the management function first. NVIDIA's tools take the beginning
    of a UUID.
    """
    selection = CardSelection.of([], ["0000:1b:00.1", "GPU-2e78"])
    assert selection.list_unknown([FIRST, SECOND]) == [
        "0000:1b:00.1 (0000:1b:00.0 is one)",
        f"GPU-2e78 ({SECOND.uuid.casefold()} is one)",
    ]


def test_a_card_of_a_backend_that_is_not_chosen_is_refused() -> None:
    with pytest.raises(BackendUnavailableError, match=r"card xrt=3b:00\.1 is of a backend that is not chosen"):
        select_cards([BackendChoice(name="nvidia"), BackendChoice(name="dfl")], (), [CardEntry("xrt", "3b:00.1")])


def test_each_backend_has_its_own_selection() -> None:
    nvidia, dfl = select_cards(
        [BackendChoice(name="nvidia"), BackendChoice(name="dfl")],
        [CardEntry("dfl", "3b:00.0")],
        [CardEntry("nvidia", "GPU-a"), CardEntry("nvidia", "GPU-b")],
    )
    assert (list(nvidia.cards.exclude), list(nvidia.cards.include)) == (["gpu-a", "gpu-b"], [])
    assert (list(dfl.cards.exclude), list(dfl.cards.include)) == ([], ["0000:3b:00.0"])


def test_what_nodes_find_by_discovery_has_no_cards_to_choose_from() -> None:
    chosen = select_cards([BackendChoice(name="discovered")], (), [CardEntry("discovered", "cam-a")])
    with pytest.raises(BackendUnavailableError, match="so change their filters"):
        choose_families([], chosen)
