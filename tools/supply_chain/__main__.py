"""``python -m tools.supply_chain sbom|licenses [LOCK...]``: the bill of materials, or each package with its licence.

The packages are those of lock files, or of that of Kerf's users where none is given. ``sbom --without-simulated`` is
that of an image without what imitates a cluster or hardware.
"""

import json
import sys
from pathlib import Path

from tools.supply_chain.sbom import build_sbom


def main(arguments: list[str]) -> int:
    what, *options = arguments or [""]
    if what not in {"sbom", "licenses"}:
        print(__doc__, file=sys.stderr)
        return 2
    locks = [Path(option) for option in options if option != "--without-simulated"]
    document = build_sbom(*locks, with_simulated=len(locks) == len(options))
    if what == "sbom":
        print(json.dumps(document, indent=2))
        return 0
    for each in document["components"]:
        listed = [one["expression"] for one in each["licenses"]] or ["not installed here"]
        print(f"{each['name']}=={each['version']}: {', '.join(listed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
