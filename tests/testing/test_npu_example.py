"""The example of ``docs/write-a-backend.md``: the page quotes it, and it works as the page says."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.testing.installed_example import EXAMPLE, ROOT, run_module

PAGE = (ROOT / "docs/write-a-backend.md").read_text()


def quotes(language: str, page: str = PAGE) -> list[str]:
    """The page's code blocks."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def code_lines(text: str) -> list[str]:
    """The lines, without the blank ones and the indentation: a quoted method stands for itself on the page."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_the_page_quotes_the_whole_example() -> None:
    explained, _, _ = PAGE.partition("## Install it")
    assert code_lines("".join(quotes("python", explained))) == code_lines((EXAMPLE / "acme_npu.py").read_text())


def test_the_page_quotes_the_entry_point() -> None:
    quoted, *_ = quotes("toml")
    assert tomllib.loads(quoted)["project"] == {
        key: value
        for key, value in tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"].items()
        if key == "entry-points"
    }


def test_the_example_has_less_than_100_lines() -> None:
    assert len((EXAMPLE / "acme_npu.py").read_text().splitlines()) < 100


def test_the_test_module_of_the_page_passes(installed: Mapping[str, str], folder: Path) -> None:
    [module] = quotes("python", PAGE.partition("## Test it")[2])
    (folder / "test_page.py").write_text(module)
    assert " passed" in run_module(installed, folder, "pytest", "-q", "-p", "no:cacheprovider", "test_page.py")


def test_the_manifests_ask_for_the_family() -> None:
    documents = yaml.safe_load_all((EXAMPLE / "pods.yaml").read_text())
    assert {document["spec"]["device"] for document in documents if document["kind"] == "ResourceClass"} == {"npu"}
