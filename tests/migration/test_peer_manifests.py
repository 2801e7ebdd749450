"""The record of what became of other projects' manifests is complete, and docs/migrating.md has its counts.

The manifests themselves are not here: a row has the repository, the commit and the path of one, and what ``kerf migrate
-f``, ``kerf plan -f`` and ``kerf demo -f`` said. What was seen to go wrong has tests of its own, beside the commands'.
"""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COLUMNS: Final = ("repository", "commit", "path", "migrate", "plan", "demo")
VERDICTS: Final = {
    "migrate": {"converted", "partly converted", "left"},
    "plan": {"placed", "waits", "refused"},
    "demo": {"ran", "waits", "nothing to run", "accepted", "refused"},
}
"""Each is an answer that names what it is about: a crash, or no output, is none. ``accepted``: read, and not run."""
with (ROOT / "tests/data/peer_manifests.csv").open(newline="") as file:
    HEADER, *ROWS = csv.reader(file)


def test_each_row_says_which_file_of_which_commit_had_which_answers() -> None:
    assert tuple(HEADER) == COLUMNS
    for row in ROWS:
        repository, commit, path, *verdicts = row
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", repository), row
        assert re.fullmatch(r"[0-9a-f]{40}", commit), row
        assert re.fullmatch(r"[^\s/].*\.(ya?ml|json)", path), row
        assert [verdict in VERDICTS[name] for name, verdict in zip(COLUMNS[3:], verdicts, strict=True)] == [True] * 3


def test_a_repository_is_recorded_at_one_commit_and_each_of_its_files_once() -> None:
    assert sorted(ROWS) == ROWS
    assert len({(row[0], row[2]) for row in ROWS}) == len(ROWS)
    assert len({(row[0], row[1]) for row in ROWS}) == len({row[0] for row in ROWS})


def test_the_page_has_the_counts() -> None:
    section = (
        (ROOT / "docs/migrating.md").read_text().partition("## Manifests of other projects")[2].partition("\n## ")[0]
    )
    assert re.findall(r"(\d+) files of (\d+) repositories", section) == [
        (str(len(ROWS)), str(len({row[0] for row in ROWS})))
    ]
    for number, name in enumerate(COLUMNS[3:], start=3):
        counts = Counter(row[number] for row in ROWS)
        [line] = re.findall(rf"^\| `kerf {name} -f` \| (.*) \|$", section, re.MULTILINE)
        told = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z ]+)", line)}
        assert told == counts
    assert len(ROWS) >= 130
