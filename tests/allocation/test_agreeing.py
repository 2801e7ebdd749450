"""Whether parties that must match find values: what one party can have is not taken for what another can."""

import pytest

from api.model.claims import DeviceRequest
from driver.allocation import DoesNotFit, Fits
from tests.allocation.builders import DRIVER, alternative, claim, decide, device, first_of, request, same, slice_

ROOT = f"{DRIVER}/root"
GPU, NIC = (f'device.attributes["{DRIVER}"].kind == {kind}' for kind in (0, 1))
BOTH = (request("g", GPU), request("n", NIC))
EITHER = (first_of("r", alternative("g", GPU), alternative("n", NIC)),)


def fits(devices: list[tuple[int, int]], *asked: tuple[DeviceRequest, ...]) -> bool:
    """Whether claims get devices of one root each; ``devices`` by kind and root."""
    attributes = [{"kind": kind, "root": root} for kind, root in devices]
    slices = [slice_(*(device(f"d{index}", attributes=each) for index, each in enumerate(attributes)))]
    claims = [claim(*requests, constraints=[same(ROOT)], name=f"c{number}") for number, requests in enumerate(asked)]
    outcome = decide(slices, *claims)
    assert isinstance(outcome, Fits | DoesNotFit)
    return isinstance(outcome, Fits)


@pytest.mark.parametrize(
    ("devices", "asked", "expected"),
    [
        ([(0, 0), (1, 0), (0, 1), (1, 1)], (BOTH, BOTH), True),
        ([(0, 0), (1, 0), (0, 1), (1, 0)], (BOTH, BOTH), False),
        ([(0, 0), (0, 0), (1, 0), (1, 0)], (BOTH, BOTH), True),
        # The same devices and counts, but of one request: alternatives are not needed together.
        ([(0, 0), (1, 0), (0, 1)], (BOTH, EITHER), True),
        ([(0, 1), (0, 0), (1, 0)], (BOTH, EITHER), True),
        ([(0, 0), (1, 0), (0, 1)], (EITHER, BOTH), True),
        ([(0, 0), (1, 0)], (BOTH, EITHER), False),
        ([(0, 0), (1, 1)], (EITHER, EITHER), True),
        ([(0, 0), (1, 1)], (EITHER, BOTH), False),
    ],
)
def test_parties_find_values_of_their_own(
    devices: list[tuple[int, int]], asked: tuple[tuple[DeviceRequest, ...], ...], expected: bool
) -> None:
    assert fits(devices, *asked) is expected


def test_a_party_that_has_begun_stays_with_its_value() -> None:
    """Its first device has been chosen; what the others can have is not open to it."""
    devices = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert fits(devices, BOTH, BOTH)
    assert not fits(devices, BOTH, BOTH, BOTH)
