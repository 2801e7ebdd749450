"""A lost partition is made again a few times, where its place is free, and never on the word of one survey."""

import pytest

from kerf_dra.driver.kubeletplugin.claims.repair.repair_decision import SURVEYS, TRIES, Loss, Repair, decide

HELD = "in use outside of Kerf: 2g.2gb at 0"
NOW = 100.0


@pytest.mark.parametrize(
    ("loss", "obstacle", "expected"),
    [
        (Loss(), None, Repair.WAIT),
        (Loss(surveys=SURVEYS - 1), None, Repair.WAIT),
        (Loss(surveys=SURVEYS - 1), HELD, Repair.WAIT),
        (Loss(surveys=SURVEYS - 1, tries=TRIES), None, Repair.WAIT),
        (Loss(surveys=SURVEYS), None, Repair.MAKE),
        (Loss(surveys=SURVEYS + 9), None, Repair.MAKE),
        (Loss(surveys=SURVEYS, tries=TRIES - 1), None, Repair.MAKE),
        (Loss(surveys=SURVEYS, tries=TRIES - 1, next_try_at=NOW), None, Repair.MAKE),
        (Loss(surveys=SURVEYS, tries=TRIES - 1, next_try_at=NOW + 1), None, Repair.WAIT),
        (Loss(surveys=SURVEYS, tries=TRIES), None, Repair.GIVE_UP),
        (Loss(surveys=SURVEYS, tries=TRIES, next_try_at=NOW + 1), None, Repair.GIVE_UP),
        (Loss(surveys=SURVEYS), HELD, Repair.GIVE_UP),
        (Loss(surveys=SURVEYS, tries=1, next_try_at=NOW + 1), HELD, Repair.GIVE_UP),
    ],
)
def test_what_follows_from_a_loss(loss: Loss, obstacle: str | None, expected: Repair) -> None:
    assert decide(loss, obstacle, NOW) is expected
