"""Pages that are generated in part are those that their sources give."""

from pathlib import Path

from tests.generate import vocabularies


def test_the_page_for_users_has_every_attribute_and_capacity(tmp_path: Path) -> None:
    (path,) = vocabularies.generate(tmp_path)
    assert (vocabularies.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"
