"""Decides what is next for a card in maintenance, and what keeps an act from beginning. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from kerf_dra.api.kerf.card_maintenance import FollowingAct, find_work
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey
from kerf_dra.driver.kubeletplugin.inventory.state.maintenances import NamedCard
from kerf_dra.driver.kubeletplugin.maintenance.work_file import WorkRecord
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.reclaim.cards import DrainableCard
from kerf_dra.driver.reclaim.progress import FREE

MOST_ATTEMPTS: Final = 3
"""Failed verifications after which nothing more is done: a card that comes up slowly has half a minute by then."""


class NextStep(StrEnum):
    """What the plugin does next for a CardMaintenance."""

    NOTHING = "nothing"
    """The card is not free, nothing is to be done with it, or all is done and reported."""
    BEGIN = "begin"
    """Begin the act, unless something keeps it from that."""
    VERIFY = "verify"
    """The act has ended, or the process that did it: verify the card."""
    GIVE_UP = "give up"
    """A hook was interrupted, or the record of an act is lost: what was done is not known."""
    REPORT = "report"
    """It is done or has failed, and the status does not say so yet."""


def decide_next(held: NamedCard, record: WorkRecord | None) -> NextStep:
    """Return what is next; ``record`` is that of this generation of ``held``, None: there is none.

    An act that may have begun never begins again: not one of which the status says that it runs, while its record is
    lost, either.
    """
    if held.then == "None":
        return NextStep.NOTHING
    work = find_work(held.generation, held.status)
    if record is None:
        if work is not None and work.state in ("Done", "Failed"):
            return NextStep.NOTHING
        if work is not None and work.state in ("Acting", "Verifying"):
            return NextStep.GIVE_UP
        return NextStep.BEGIN if is_free(held) else NextStep.NOTHING
    if record.stage == "Planned":
        return NextStep.BEGIN if is_free(held) else NextStep.NOTHING
    if record.stage == "Begun":
        return NextStep.GIVE_UP if record.act == "Hook" else NextStep.VERIFY
    if record.stage == "Ended":
        return NextStep.VERIFY
    return NextStep.NOTHING if work is not None and work.state == record.stage else NextStep.REPORT


def is_free(held: NamedCard) -> bool:
    """Whether ``kerf controller --reclaim`` says of this generation that nothing holds the card."""
    return held.status.observed_generation == held.generation and any(
        condition.type == FREE and condition.status == "True" for condition in held.status.conditions
    )


def find_obstacle(
    card: Card, records: Iterable[PreparedClaim], survey: CardSurvey, published: DrainableCard | None
) -> str:
    """Return why no act may begin on ``card`` now; empty: it may.

    ``records`` are those of all claims and extended resources of the node, ``survey`` is of this moment, and
    ``published`` is the card as the API server has it, None: it has no device of it.
    """
    for record in records:
        for device in record.devices:
            if device.part.card_uuid == card.uuid:
                who = f"extended resource {record.resource}" if record.resource else f"claim {record.claim}"
                watches = ", which only watches it" if device.admin_access else ""
                return f"{who} has {device.share.id.device} on this node{watches}: end its pods"
    for found in survey.partitions:
        if found.is_use:
            return f"a process outside of Kerf uses the card ({found.id}): end it"
        return f"{found} is on the card, which is not Kerf's, and would be lost: remove it"
    if published is None or not published.is_withheld:
        return "the API server does not have the taint of all devices of the card yet"
    return "the slices of this node say that something of the card is in use" if published.is_in_use else ""


def find_mode_problem(act: FollowingAct, survey: CardSurvey) -> str:
    """Return why a card is not in the mode that the act was for; empty: it is, or the act is for no mode."""
    if act == "MigOn" and survey.no_partitions and not survey.no_whole:
        return f"MIG mode is not on: {survey.no_partitions}"
    if act == "MigOff" and survey.no_whole:
        return f"MIG mode is not off: {survey.no_whole}"
    return ""


def choose_test_partition(card: Card, act: FollowingAct, survey: CardSurvey) -> Partition | None:
    """Return the smallest partition that is made and removed to verify a card; None: none can be.

    After MIG mode was switched off none is made, which could switch it on. What is loaded from an image, as into FPGAs,
    is not tested: the survey alone says whether the card answers.
    """
    if act == "MigOff" or survey.no_partitions:
        return None
    specs = (spec for spec in get_unit_map(card).specs if spec.profile is not None and spec.placement is not None)
    return next((spec.of(card.uuid) for spec in specs), None)
