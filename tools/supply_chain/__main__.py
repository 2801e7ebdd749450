"""``python -m tools.supply_chain sbom|licenses [LOCK...]``: the bill of materials, or each package with its licence.

The packages are those of lock files, or of that of Kerf's users where none is given.
"""

import json
import sys
from pathlib import Path

from tools.supply_chain.sbom import build_sbom


def main(arguments: list[str]) -> int:
    if arguments[:1] not in (["sbom"], ["licenses"]):
        print(__doc__, file=sys.stderr)
        return 2
    document = build_sbom(*map(Path, arguments[1:]))
    if arguments[0] == "sbom":
        print(json.dumps(document, indent=2))
        return 0
    for each in document["components"]:
        listed = [one["expression"] for one in each["licenses"]] or ["not installed here"]
        print(f"{each['name']}=={each['version']}: {', '.join(listed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
