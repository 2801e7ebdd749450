"""The proof that a claim has ended: which answers of the API server count, and how many are needed."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.cluster.claim_end import (
    ANSWERS,
    ClaimEnd,
    EndProof,
    SeenClaim,
    SeenClaims,
    Source,
    add_answer,
    find_end,
)
from tests.fakes.claims import CONSUMER, claim
from tests.kubeletplugin.records import record

GRACE_S = 60.0
SLICE = "gpu-0-1g-1gb-at-0"
STORAGE, CACHE = Source.STORAGE, Source.CACHE


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (None, ClaimEnd.ABSENT),
        (claim("training", "gpu-0-1g-1gb-at-0"), None),
        (claim("training", "gpu-0-1g-1gb-at-0", "gpu-1"), None),
        (claim("training", "gpu-0-1g-1gb-at-0", uid="another"), ClaimEnd.ABSENT),
        (claim("training"), ClaimEnd.TAKEN),
        (claim("training", "gpu-1"), ClaimEnd.TAKEN),
        (claim("training", "gpu-0-1g-1gb-at-0", is_reserved=False), ClaimEnd.UNRESERVED),
        (claim("training", "gpu-1", is_reserved=False), ClaimEnd.TAKEN),
    ],
    ids=[
        "deleted",
        "there",
        "there with more",
        "made anew",
        "deallocated",
        "allocated otherwise",
        "reserved for nobody",
        "allocated otherwise and reserved for nobody",
    ],
)
def test_when_a_claim_has_ended(there: ResourceClaim | None, expected: ClaimEnd | None) -> None:
    assert find_end(there, record(), "uid-of-training") is expected


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (claim("training", SLICE), None),
        (claim("training", SLICE, "gpu-1"), ClaimEnd.TAKEN),
        (claim("training", "gpu-1"), ClaimEnd.TAKEN),
        (claim("training"), ClaimEnd.TAKEN),
    ],
    ids=["the same again", "the same and more", "another", "none"],
)
def test_what_a_claim_had_before_ends_unless_it_has_just_that_again(
    there: ResourceClaim, expected: ClaimEnd | None
) -> None:
    """It had the same device and another one: nothing released the first, and no prepare succeeded any more."""
    assert find_end(there, record("training-aside-1"), "uid-of-training") is expected


def at(version: str, *devices: str, is_reserved: bool = True, uid: str = "") -> ResourceClaim:
    """The claim at a resource version."""
    made = claim("training", *devices, is_reserved=is_reserved, uid=uid)
    return replace(made, metadata=replace(made.metadata, resource_version=version))


IN_USE = SeenClaim().note(at("100", SLICE), is_in_use=True)


@pytest.mark.parametrize(
    ("shown", "contradiction"),
    [
        (None, ""),
        (at("101"), ""),
        (at("99"), "it is shown at version 99, which is older than 100, at which it was seen before"),
        (at("99", SLICE, uid="another"), "it is shown at version 99, which is older than 100"),
        (at("100"), "at the same version 100 it was in use"),
        (at("100", SLICE, is_reserved=False), "at the same version 100 it was in use"),
        (at("100", SLICE, uid="another"), "at the same version 100 it was in use"),
        (at("9-a"), ""),
        (at(""), ""),
    ],
)
def test_a_claim_has_no_older_version_than_before_and_no_two_contents_at_one(
    shown: ResourceClaim | None, contradiction: str
) -> None:
    found = IN_USE.find_contradiction(shown)
    assert found.startswith(contradiction)
    assert bool(found) == bool(contradiction)


def test_versions_are_compared_where_both_are_numbers() -> None:
    seen = SeenClaim().note(at("b-7", SLICE), is_in_use=True)
    assert (seen.newest, seen.find_contradiction(at("1"))) == ("", "")
    assert seen.note(at("12", SLICE), is_in_use=True).newest == "12"


def test_the_newest_version_is_kept_and_the_pods_of_the_newest_use() -> None:
    seen = IN_USE.note(at("103"), is_in_use=False).note(at("102", SLICE), is_in_use=True)
    assert (seen.newest, seen.in_use, seen.pods) == ("103", 102, (CONSUMER,))
    assert seen.find_contradiction(at("103")) == ""


def test_only_what_has_a_record_is_remembered() -> None:
    seen = SeenClaims()
    for uid in ("a", "b"):
        seen.note(uid, at("7", SLICE), is_in_use=True)
    seen.keep(["b"])
    assert (seen.get("a"), seen.get("b").newest) == (SeenClaim(), "7")


Answers = Sequence[tuple[float, Source, ClaimEnd | None, str]]


def prove(answers: Answers) -> EndProof | None:
    proof: EndProof | None = None
    for now, source, end, contradiction in answers:
        assert proof is None or proof.next_source is source
        proof = add_answer(proof, source, end, contradiction, now=now, grace_s=GRACE_S)
    return proof


GONE, UNRESERVED = ClaimEnd.ABSENT, ClaimEnd.UNRESERVED


@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        ([(0, STORAGE, GONE, "")], 1),
        ([(0, STORAGE, GONE, ""), (59, CACHE, GONE, "")], 1),
        ([(0, STORAGE, GONE, ""), (59, CACHE, GONE, ""), (60, CACHE, GONE, "")], ANSWERS),
        ([(0, STORAGE, GONE, ""), (60, CACHE, GONE, ""), (120, STORAGE, GONE, "")], 3),
        ([(0, STORAGE, GONE, ""), (60, CACHE, UNRESERVED, "")], 1),
        ([(0, STORAGE, GONE, ""), (60, CACHE, GONE, "older")], 0),
        ([(0, STORAGE, GONE, ""), (60, CACHE, GONE, "older"), (61, STORAGE, GONE, "")], 1),
        ([(0, STORAGE, GONE, ""), (60, CACHE, None, "")], 0),
        ([(0, STORAGE, GONE, ""), (60, CACHE, None, ""), (61, STORAGE, GONE, "")], 1),
        ([(0, STORAGE, UNRESERVED, "the same version")], 0),
    ],
    ids=[
        "one",
        "two too soon",
        "two",
        "three",
        "another end",
        "contradicted",
        "contradicted, then not",
        "in use by the cache",
        "in use by the cache, then not by the storage",
        "contradicted from the beginning",
    ],
)
def test_answers_count_that_agree_from_both_sources_apart_by_the_grace(answers: Answers, counted: int) -> None:
    proof = prove(answers)
    assert proof is not None
    assert proof.answers == counted
    assert bool(proof.doubt) == (counted == 0)


def test_the_storage_ends_the_doubt_and_the_cache_does_not() -> None:
    assert prove([(0, STORAGE, None, "")]) is None
    answers: Answers = [(0, STORAGE, GONE, ""), (60, CACHE, None, "")]
    proof = prove(answers)
    assert proof is not None
    assert (proof.since, proof.doubt) == (0, "its cache has it in use")
    assert prove([*answers, (75, STORAGE, None, "")]) is None


def test_a_proof_that_is_contradicted_again_and_again_is_as_old_as_its_first_answer() -> None:
    flips: Answers = [(0, STORAGE, GONE, ""), (60, CACHE, None, ""), (75, STORAGE, GONE, ""), (135, CACHE, None, "")]
    proof = prove(flips)
    assert proof is not None
    assert (proof.since, proof.answers) == (0, 0)
