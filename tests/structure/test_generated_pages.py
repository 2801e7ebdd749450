"""Pages that are generated in part are those that their sources give."""

import re
from pathlib import Path
from typing import Any

import pytest

from tools.generate import (
    chart_values,
    claim_diagrams,
    command_line,
    dashboard,
    driver_differences,
    examples,
    judges,
    kinds,
    metrics,
    pictures,
    placement_plot,
    sanity_rows,
    terminal_screens,
    vocabularies,
)


def test_the_page_for_users_has_every_attribute_and_capacity(tmp_path: Path) -> None:
    (path,) = vocabularies.generate(tmp_path)
    assert (vocabularies.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"


def test_the_page_for_admins_has_every_metric(tmp_path: Path) -> None:
    (path,) = metrics.generate(tmp_path)
    assert (metrics.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"


@pytest.mark.parametrize(
    "generator",
    [
        kinds,
        command_line,
        chart_values,
        pictures,
        claim_diagrams,
        terminal_screens,
        placement_plot,
        examples,
        dashboard,
        driver_differences,
        sanity_rows,
        judges,
    ],
    ids=lambda each: each.__name__,
)
def test_references_and_pictures_are_what_the_code_gives(generator: Any, tmp_path: Path) -> None:
    paths = generator.generate(tmp_path)
    stale = [path for path in paths if (generator.ROOT / path).read_text() != (tmp_path / path).read_text()]
    assert stale == [], "run `make generate`"


def test_every_metric_that_the_page_names_is_there() -> None:
    made = {
        metric.name
        for package in ("controller", "kubeletplugin", "kube", "runtime")
        for metric in metrics.find_metrics(package)
    }
    named = set(re.findall(r"(?:kerf|dra_device)_[a-z_]+", (metrics.ROOT / metrics.PAGE).read_text()))
    assert named == made
