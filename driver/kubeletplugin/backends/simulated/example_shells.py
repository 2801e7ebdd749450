"""Examples of FPGA shells, which simulated cards may have by name: no product has them.

They are descriptions as administrators write them, FpgaShells and FpgaImages (``examples``). No other code knows them:
what a cluster's cards are, its own descriptions say.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.families.fpga.descriptions import Description, Descriptions, build_descriptions
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.model_names import find_model

_EXAMPLES: Final = Path(__file__).with_name("examples")


def shells() -> tuple[Shell, ...]:
    """Every example of a shell, by name."""
    return descriptions().cards


def shell(name: str) -> Shell:
    """The example named ``name``, or the only one whose name begins with it; letter case does not matter.

    Raises UnknownModelError when no shell matches, or several do.
    """
    return find_model("FPGA shell", name, {shell.name: shell for shell in shells()}, {})


@cache
def descriptions() -> Descriptions:
    """All examples."""
    found = build_descriptions(Description(f"{one['kind']} {one['metadata']['name']}", one) for one in _documents())
    assert not found.problems, found.problems
    return found


@cache
def _documents() -> tuple[dict[str, Any], ...]:
    files = sorted((file for file in _EXAMPLES.iterdir() if file.name.endswith(".json")), key=lambda f: f.name)
    return tuple(document for file in files for document in json.loads(file.read_bytes()))
