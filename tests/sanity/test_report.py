"""What a run prints: for people at 80 columns, for programs, and for systems of continuous integration."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from kerf_dra.driver.sanity.report import build_document, build_junit, format_result, format_summary, has_failed
from kerf_dra.driver.sanity.rows import Level, Outcome, Row, RowResult
from kerf_dra.driver.sanity.run import ROWS, waive

MUST = next(row for row in ROWS if row.level is Level.MUST)
MAY = next(row for row in ROWS if row.level is Level.MAY)
WAIVED = waive(RowResult(MUST, Outcome.FAILED, "late"), {MUST.id: "vendor ticket 7"})
RESULTS = (
    RowResult(MUST, Outcome.FAILED, "it answers\x1b[2J <nothing> & more"),
    RowResult(MAY, Outcome.FAILED, "late"),
    RowResult(ROWS[1], Outcome.PASSED),
    RowResult(ROWS[2], Outcome.SKIPPED, "it has no device"),
)


def test_a_row_that_failed_says_what_was_seen_what_to_do_and_why_in_80_columns() -> None:
    text = format_result(RESULTS[0])
    assert max(map(len, text.splitlines())) <= 80
    labels = [line.split(":")[0].strip() for line in text.splitlines() if line[8:9].isalpha() and line[:8].isspace()]
    assert labels == ["seen", "do", "source"]
    assert "\x1b" not in text


def test_a_row_that_passed_is_one_line_and_one_that_was_not_tried_says_why() -> None:
    assert format_result(RESULTS[2]) == f"passed  {ROWS[1].id:13}{ROWS[1].level:7}{ROWS[1].tries}"
    assert "why:    it has no device" in format_result(RESULTS[3])


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_every_row_says_what_is_tried_where_it_stands_and_what_to_do(row: Row) -> None:
    for text in (row.tries, row.source, row.remedy):
        assert text
        assert not text.endswith(".")


def test_ids_of_rows_are_unique() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_the_summary_counts_by_level() -> None:
    assert format_summary("toy.example.com", RESULTS) == (
        "toy.example.com: 1 passed, 1 failed that a driver must meet, 1 failed that a driver may meet, 1 not tried"
    )


@pytest.mark.parametrize(
    ("results", "fails"),
    [(RESULTS, True), (RESULTS[1:], False), ((replace(RESULTS[0], outcome=Outcome.PASSED),), False)],
)
def test_only_what_every_driver_must_meet_fails_a_run(results: tuple[RowResult, ...], fails: bool) -> None:
    assert has_failed(results) == fails


def test_the_document_has_every_row_with_its_outcome() -> None:
    document = build_document("toy.example.com", RESULTS)
    assert [(row["id"], row["level"], row["outcome"], row["seen"]) for row in document["rows"]] == [
        (each.row.id, str(each.row.level), str(each.outcome), each.seen) for each in RESULTS
    ]


def test_junit_has_failures_and_skipped_rows_and_is_xml_whatever_a_driver_answers() -> None:
    suite = ET.fromstring(build_junit("toy.example.com", RESULTS))
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "4",
        "failures": "2",
        "skipped": "1",
    }
    cases = [[child.tag for child in case] for case in suite]
    assert cases == [["failure"], ["failure"], [], ["skipped"]]
    failure = suite.find("./testcase/failure")
    assert failure is not None
    assert "<nothing> & more" in (failure.get("message") or "")


def test_a_waived_row_fails_no_run_and_every_report_has_the_reason() -> None:
    assert not has_failed([WAIVED])
    assert format_summary("toy.example.com", [WAIVED]) == "toy.example.com: 0 passed, 1 waived"
    assert [line.split() for line in format_result(WAIVED).splitlines()[-2:]] == [
        ["seen:", "late"],
        ["waived:", "vendor", "ticket", "7"],
    ]
    [row] = build_document("toy.example.com", [WAIVED])["rows"]
    assert (row["outcome"], row["seen"], row["waiver"]) == ("waived", "late", "vendor ticket 7")
    skipped = ET.fromstring(build_junit("toy.example.com", [WAIVED])).find("./testcase/skipped")
    assert skipped is not None
    assert skipped.get("message") == "waived: vendor ticket 7; seen: late"


def test_a_waiver_of_a_row_that_is_met_is_named_and_of_others_nothing_is_said() -> None:
    met = RowResult(MUST, Outcome.PASSED)
    assert "waived: without need: vendor ticket 7" in format_result(waive(met, {MUST.id: "vendor ticket 7"}))
    assert waive(met, {MAY.id: "vendor ticket 7"}) == met
