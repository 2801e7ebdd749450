"""``python -m tools.image [ARCHIVE]``: Kerf's container image as an OCI archive, made without a container engine."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools.image import description
from tools.image.archive import write_archive
from tools.image.layers import OWN, ImageBuildError, build_layers


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("archive", nargs="?", type=Path, default=Path("dist/kerf-image.tar"), help="(%(default)s)")
    parser.add_argument("--name", help=f"what runtimes call the image ({description.NAME})")
    parser.add_argument(
        "--sanity",
        action="store_true",
        help=f"make {description.SANITY}, whose program is `kerf sanity`, and whose user is root",
    )
    parser.add_argument(
        "--without-cdi-hook",
        action="store_true",
        help="leave out the program that containers with NVIDIA GPUs need, which is built with Go and cgo",
    )
    parser.add_argument(
        "--with-simulated",
        action="store_true",
        help="keep the command demo and the backends without hardware, which the chart's profile simulated needs",
    )
    parsed = parser.parse_args(arguments)
    inputs = replace(OWN, with_simulated=parsed.with_simulated)
    try:
        layers = build_layers(inputs, with_cdi_hook=not parsed.without_cdi_hook)
    except ImageBuildError as error:
        print(error, file=sys.stderr)
        return 1
    parsed.archive.parent.mkdir(parents=True, exist_ok=True)
    name = parsed.name or (description.SANITY if parsed.sanity else description.NAME)
    write_archive(name, parsed.archive, layers, description.configuration(is_sanity=parsed.sanity))
    print(parsed.archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
