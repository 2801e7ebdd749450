"""The NVLinks of cards go to other cards or to a switch, and are up or down."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import NVSWITCH, CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.description import UnsuitableDescriptionError
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.testing.nvml.conftest import MakeMachine

H100 = "h100-80gb-sxm"
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    pynvml.nvmlDeviceGetNvLinkState,
    pynvml.nvmlDeviceGetNvLinkVersion,
    pynvml.nvmlDeviceGetNvLinkRemotePciInfo,
    pynvml.nvmlDeviceGetNvLinkRemoteDeviceType,
)


def linked(*nvlinks: tuple[int, ...], model: str = H100) -> list[CardDescription]:
    return [CardDescription(model=model, nvlinks=one) for one in nvlinks]


def list_remotes(index: int) -> list[str]:
    """Return the PCI addresses at the other ends of the card's links that are up, as topologies are read."""
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    found = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(card, link) == pynvml.NVML_FEATURE_ENABLED:
                found.append(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
    return found


@NEEDS_COMPILER
def test_links_lead_to_the_cards_at_their_other_ends(make_machine: MakeMachine) -> None:
    machine = make_machine(*linked((1, 1, 2), (0, 0), (0,), ()))
    with open_nvml(machine):
        first, second, third, _ = (
            pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).busId for index in range(4)
        )
        assert [list_remotes(index) for index in range(4)] == [[second, second, third], [first, first], [first], []]
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(card, 2) == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        machine.set_nvlink(0, 1, is_on=False)
        assert list_remotes(0) == [second, third]
        machine.drop_card(2)
        assert list_remotes(0) == [second]
        machine.restore_card(2)
        machine.set_nvlink(0, 1, is_on=True)
        assert list_remotes(0) == [second, second, third]


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("a100-80gb", pynvml.NVML_NVLINK_VERSION_3_0),
        (H100, pynvml.NVML_NVLINK_VERSION_4_0),
        ("b200-180gb", pynvml.NVML_NVLINK_VERSION_5_0),
    ],
)
def test_links_to_a_switch_have_its_address_and_the_version_of_their_card(
    make_machine: MakeMachine, model: str, version: int
) -> None:
    with open_nvml(make_machine(*linked(18 * (NVSWITCH,), 18 * (NVSWITCH,), model=model))):
        cards = [pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).busId for index in range(2)]
        assert len({*list_remotes(0), *list_remotes(1)} - {*cards}) == 1
        assert len(list_remotes(0)) == 18
        card = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(card, 17) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        assert pynvml.nvmlDeviceGetNvLinkVersion(card, 17) == version


@NEEDS_COMPILER
def test_a_link_that_is_down_has_no_capability_and_no_other_end(make_machine: MakeMachine) -> None:
    machine = make_machine(*linked((1, 1), (0, 0)))
    machine.set_nvlink(0, 1, is_on=False)
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        for capability, is_there in (
            (pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED, 1),
            (pynvml.NVML_NVLINK_CAP_P2P_ATOMICS, 1),
            (pynvml.NVML_NVLINK_CAP_SLI_BRIDGE, 0),
        ):
            assert pynvml.nvmlDeviceGetNvLinkCapability(card, 0, capability) == is_there
            assert pynvml.nvmlDeviceGetNvLinkCapability(card, 1, capability) == 0
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetNvLinkCapability(card, 0, pynvml.NVML_NVLINK_CAP_COUNT)
        for function in FUNCTIONS[2:]:
            with pytest.raises(pynvml.NVMLError_NotSupported):
                function(card, 1)


@NEEDS_COMPILER
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_a_card_without_links_does_not_support_them_and_one_with_some_has_no_others(
    make_machine: MakeMachine, function: Callable[..., Any]
) -> None:
    with open_nvml(make_machine(*linked((1,), (0,), ()))):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            function(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
        with pytest.raises(pynvml.NVMLError_NotSupported):
            function(pynvml.nvmlDeviceGetHandleByIndex(2), 0)


@NEEDS_COMPILER
def test_capabilities_of_numbers_that_the_card_does_not_have_are_answered_like_those_of_its_links(
    make_machine: MakeMachine,
) -> None:
    with open_nvml(make_machine(*linked((1, 1), (0, 0), ()))):
        card, unlinked = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 2))
        for link in (0, 2, pynvml.NVML_NVLINK_MAX_LINKS - 1):
            assert pynvml.nvmlDeviceGetNvLinkCapability(card, link, pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED) == 1
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetNvLinkCapability(
                card, pynvml.NVML_NVLINK_MAX_LINKS, pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED
            )
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetNvLinkCapability(unlinked, 0, pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED)


@NEEDS_COMPILER
def test_links_of_a_card_in_mig_mode_are_reported_as_down(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine(*linked((1, 1), (0, 0)))):
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        pynvml.nvmlDeviceSetMigMode(first, pynvml.NVML_DEVICE_MIG_ENABLE)
        assert [pynvml.nvmlDeviceGetNvLinkState(first, link) for link in (0, 1)] == [0, 0]
        assert [pynvml.nvmlDeviceGetNvLinkState(second, link) for link in (0, 1)] == [1, 1]
        pynvml.nvmlDeviceSetMigMode(first, pynvml.NVML_DEVICE_MIG_DISABLE)
        assert [pynvml.nvmlDeviceGetNvLinkState(first, link) for link in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    "nvlinks",
    [((1, 1), (0,)), ((0,), ()), ((2,), ()), ((-2,), ()), (19 * (NVSWITCH,), ())],
    ids=["one end is missing", "to itself", "to no card", "to no card below 0", "more than there are"],
)
def test_links_that_cannot_be_are_refused(tmp_path: Path, nvlinks: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(UnsuitableDescriptionError, match="card 0 has"):
        NvidiaMachine.create(tmp_path / "machine", MachineDescription(cards=tuple(linked(*nvlinks))))
