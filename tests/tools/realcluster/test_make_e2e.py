"""``make e2e`` runs every test that needs a real cluster."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
MARK = re.compile(r"pytest\.mark\.realcluster")


def test_every_test_of_a_real_cluster_is_where_make_e2e_looks() -> None:
    (folders,) = re.findall(r"^E2E *= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    searched = [ROOT / folder for folder in folders.split()]
    assert all(folder.is_dir() for folder in searched)
    marked = [file for file in (ROOT / "tests").rglob("*.py") if MARK.search(file.read_text())]
    assert marked
    assert [file for file in marked if not any(folder in file.parents for folder in searched)] == []
