"""Prints, at the end of a run of tests/attack, how many kinds of attack were tried and how many held."""

import pytest

from tests.attack.kinds import find_test, load_tests


class _Tally:
    """Counts in the process that gathers all reports: with pytest-xdist that is not the one that runs the test."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], bool] = {}
        """Whether each kind that was tried held with all its parameters, by test and name."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = find_test(report.nodeid)
        if found is None or found[1] is None:
            return
        key = (found[0].test, found[1])
        if report.when == "call" and not report.skipped:
            self.held[key] = self.held.get(key, True) and report.passed
        elif report.failed:
            self.held[key] = False

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.held:
            terminalreporter.write_line("")
            for line in build_table(self.held):
                terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Tally(), "attack-kinds")


def build_table(held: dict[tuple[str, str], bool]) -> list[str]:
    """Return the lines of the table, with a row for each group in the order of ``kinds.toml``."""
    rows: dict[str, list[int]] = {}
    for one in load_tests():
        row = rows.setdefault(one.group, [0, 0, 0])
        for kind in one.kinds:
            row[0] += 1
            row[1] += (one.test, kind) in held
            row[2] += held.get((one.test, kind), False)
    rows["all"] = [sum(numbers) for numbers in zip(*rows.values(), strict=True)]
    return [f"{'group of attacks':<36}{'kinds':>7}{'tried':>7}{'held':>7}"] + [
        f"{group:<36}{kinds:>7}{tried:>7}{stood:>7}" for group, (kinds, tried, stood) in rows.items()
    ]
