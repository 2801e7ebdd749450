"""Problems in the log: once per object, again when they change, and again after they were solved or the object gone."""

import logging

import pytest

from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged since the last call."""
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_a_problem_is_logged_once_for_each_object_and_again_when_it_is_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = ProblemLog(_log)
    assert problems.note("a", "too hot")
    assert not problems.note("a", "too hot")
    assert problems.note("b", "too hot")
    assert problems.note("a", "too cold")
    assert problems.note("a", "too hot")
    assert logged(caplog) == ["too hot", "too hot", "too cold", "too hot"]
    assert list(problems.messages) == ["too hot", "too hot"]


def test_a_problem_that_was_solved_is_logged_when_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    problems = ProblemLog(_log)
    assert not problems.clear("a")
    problems.note("a", "too hot")
    problems.note("b", "too wet")
    assert problems.clear("a")
    assert list(problems.messages) == ["too wet"]
    logged(caplog)
    problems.note("a", "too hot")
    problems.note("b", "too wet")
    assert logged(caplog) == ["too hot"]


def test_the_problem_of_an_object_that_is_gone_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    problems = ProblemLog(_log)
    for name in ("a", "b"):
        problems.note(name, f"{name} is too hot")
    problems.keep({"b", "c"})
    assert list(problems.messages) == ["b is too hot"]
    logged(caplog)
    for name in ("a", "b"):
        problems.note(name, f"{name} is too hot")
    assert logged(caplog) == ["a is too hot"]


def test_of_problems_that_are_about_themselves_each_is_logged_when_it_was_not_there_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = ProblemLog(_log)
    for messages in (["hot", "wet", "hot"], ["wet", "cold"], ["hot"], []):
        problems.replace(messages)
    assert logged(caplog) == ["hot", "wet", "cold", "hot"]
    assert not problems.messages


def test_a_problem_has_the_level_that_its_log_was_made_with_and_is_no_template(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ProblemLog(_log).note("a", "100 %s")
    ProblemLog(_log, logging.ERROR).note("a", "100 %s")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "100 %s"),
        ("ERROR", "100 %s"),
    ]
