"""Kerf as it is installed in the image: without what imitates a cluster or hardware, and with a RECORD that is true.

``python -m tools.image.installed_wheel SITE_PACKAGES [--with-simulated]``, after everything is compiled. ``RECORD`` has
each file of the installation with hash and size (packaging.python.org, "Recording installed projects"); scanners and
pip read it.
"""

import argparse
import base64
import csv
import hashlib
import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.image.description import IMITATIONS

_DIST_INFO: Final = "kerf_dra-*.dist-info"


def finish_installation(site: Path, left_out: Iterable[str] = IMITATIONS) -> None:
    """Remove the folders ``left_out`` below ``site``, and write RECORD again, of all files that are there."""
    for folder in left_out:
        shutil.rmtree(site / folder)
    (dist_info,) = site.glob(_DIST_INFO)
    record = dist_info / "RECORD"
    rows = io.StringIO(newline="")
    csv.writer(rows, lineterminator="\n").writerows([*_rows(site, record), (_name(site, record), "", "")])
    record.write_text(rows.getvalue(), encoding="utf-8")


def _rows(site: Path, record: Path) -> Iterator[tuple[str, str, int]]:
    """Yield name, hash and size of each file that belongs to Kerf: its packages, and what pip says of it."""
    with record.open(newline="", encoding="utf-8") as file:
        packages = {name.partition("/")[0] for name, *_ in csv.reader(file)} - {"..", "bin"}
    for path in sorted(path for package in packages for path in (site / package).rglob("*")):
        if path.is_file() and path != record:
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            yield _name(site, path), f"sha256={digest}", len(content)


def _name(site: Path, path: Path) -> str:
    return path.relative_to(site).as_posix()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.image.installed_wheel")
    parser.add_argument("site", type=Path)
    parser.add_argument("--with-simulated", action="store_true")
    parsed = parser.parse_args(arguments)
    finish_installation(parsed.site, () if parsed.with_simulated else IMITATIONS)


if __name__ == "__main__":
    main(sys.argv[1:])
