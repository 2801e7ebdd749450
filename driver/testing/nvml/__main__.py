"""``python -m kerf_dra.driver.testing.nvml FOLDER MODEL [MODEL ...]``: make a machine with a card of each model."""

import sys
from pathlib import Path

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine


def main(arguments: list[str]) -> int:
    """Make the machine, and print the variables with which programs find its library."""
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print("usage: python -m kerf_dra.driver.testing.nvml FOLDER MODEL [MODEL ...]", file=sys.stderr)
        return 2
    folder, *models = arguments
    cards = tuple(CardDescription(model=model) for model in models)
    try:
        machine = NvidiaMachine.create(Path(folder), MachineDescription(cards=cards, seed=str(Path(folder).resolve())))
    except (KerfError, OSError) as error:
        print(f"kerf_dra.driver.testing.nvml: {error}", file=sys.stderr)
        return 1
    for name, value in machine.environment().items():
        print(f"export {name}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
