"""The report of a run: text for people, a document for programs, and JUnit's XML for CI systems."""

from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import wrap
from xml.etree import ElementTree as ET

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.sanity.rows import Level, Outcome, RowResult

_WIDTH = 80
"""Columns of a terminal."""


def format_result(result: RowResult) -> str:
    """Return the lines about one row: what was tried and, unless it passed, what was seen and what to do."""
    row = result.row
    head = f"{result.outcome:8}{row.id:13}{row.level:7}"
    lines = wrap(head + row.tries, _WIDTH, subsequent_indent=" " * len(head))
    if result.outcome is Outcome.FAILED:
        lines += _indent("seen", result.seen) + _indent("do", row.remedy) + _indent("source", row.source)
    elif result.outcome is Outcome.SKIPPED:
        lines += _indent("why", result.seen)
    elif result.outcome is Outcome.WAIVED:
        lines += _indent("seen", result.seen) + _indent("waived", result.waiver)
    elif result.waiver:
        lines += _indent("waived", f"without need: {result.waiver}")
    return "\n".join(lines)


def format_summary(driver: str, results: Sequence[RowResult]) -> str:
    """Return the last line: how many rows passed, failed, were waived and were not tried."""
    counts = Counter(result.outcome for result in results)
    failed = Counter(result.row.level for result in results if result.outcome is Outcome.FAILED)
    parts = [f"{counts[Outcome.PASSED]} passed"]
    for level in Level:
        if failed[level]:
            parts.append(f"{failed[level]} failed that a driver {level} meet")
    if counts[Outcome.WAIVED]:
        parts.append(f"{counts[Outcome.WAIVED]} waived")
    if counts[Outcome.SKIPPED]:
        parts.append(f"{counts[Outcome.SKIPPED]} not tried")
    return f"{driver}: {', '.join(parts)}"


def has_failed(results: Iterable[RowResult]) -> bool:
    """Whether a row failed that every driver must meet."""
    return any(result.outcome is Outcome.FAILED and result.row.level is Level.MUST for result in results)


def build_document(driver: str, results: Iterable[RowResult]) -> JsonObject:
    """Return the results for programs."""
    return {
        "driver": driver,
        "rows": [
            {
                "id": result.row.id,
                "level": str(result.row.level),
                "outcome": str(result.outcome),
                "tries": result.row.tries,
                "seen": result.seen,
                "waiver": result.waiver,
                "remedy": result.row.remedy,
                "source": result.row.source,
            }
            for result in results
        ],
    }


def build_junit(driver: str, results: Sequence[RowResult]) -> bytes:
    """Return the results as a test suite in JUnit's XML: failed *should* rows are failures, waived ones are skipped."""
    counts = Counter(result.outcome for result in results)
    suite = ET.Element(
        "testsuite",
        name=f"kerf sanity {driver}",
        tests=str(len(results)),
        failures=str(counts[Outcome.FAILED]),
        skipped=str(counts[Outcome.SKIPPED] + counts[Outcome.WAIVED]),
    )
    for result in results:
        row = result.row
        case = ET.SubElement(suite, "testcase", classname=f"{driver}.{row.level}", name=f"{row.id} {row.tries}")
        seen = to_one_line(result.seen)
        if result.outcome is Outcome.FAILED:
            failure = ET.SubElement(case, "failure", message=seen)
            failure.text = f"{seen}\ndo: {row.remedy}\nsource: {row.source}"
        elif result.outcome is Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=seen)
        elif result.outcome is Outcome.WAIVED:
            ET.SubElement(case, "skipped", message=f"waived: {to_one_line(result.waiver)}; seen: {seen}")
    document: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def _indent(label: str, text: str) -> list[str]:
    first, later = f"{'':8}{label + ':':8}", " " * 16
    return wrap(to_one_line(text), _WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False)
