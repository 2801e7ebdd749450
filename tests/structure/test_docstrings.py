"""Every example in a docstring prints what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

from tools.sources import PRODUCT, dotted, modules, text

EXAMPLES = [path for path in modules(*PRODUCT) if ">>> " in text(path)]


@pytest.mark.parametrize("module", EXAMPLES, ids=dotted)
def test_examples_are_true(module: Path) -> None:
    results = doctest.testmod(importlib.import_module(dotted(module)))
    assert results.attempted > 0
    assert results.failed == 0
