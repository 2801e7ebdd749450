"""The licences of installed packages, as SPDX expressions (https://spdx.org/licenses)."""

import re
from importlib.metadata import PackageMetadata, metadata
from typing import Final

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "Python-2.0",
        "Zlib",
    }
)
"""Licences that let Kerf be given away under its own, Apache-2.0, with their notices."""
OTHERS: Final = {
    "axe-playwright-python": "",
    "certifi": "MPL-2.0",
    "hypothesis": "MPL-2.0",
    "nvidia-ml-py": "BSD",
    "pathspec": "MPL-2.0",
}
"""Packages whose metadata says something else. MPL-2.0 is for changes of their own files, which Kerf does not make; the
BSD licence in the files of nvidia-ml-py has three clauses, its metadata does not say so. axe-playwright-python has the
MIT licence as a file, and in it axe-core under MPL-2.0; only `make view-test` installs it."""
_SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What packages write in place of an SPDX identifier."""
_CLASSIFIER: Final = "License :: OSI Approved :: "


def license_of(package: str) -> str:
    """Return the licence of an installed package; empty: its metadata names none that is known.

    Raises PackageNotFoundError when it is not installed.
    """
    fields = metadata(package)
    return _declared(fields) or _classified(fields)


def identifiers(expression: str) -> set[str]:
    """Return the licences of an SPDX expression."""
    return {word for word in re.findall(r"[A-Za-z0-9.+-]+", expression) if word not in {"AND", "OR", "WITH"}}


def _declared(fields: PackageMetadata) -> str:
    text = next((str(fields[key]) for key in ("License-Expression", "License") if key in fields), "")
    return _SPDX.get(text, text) if "\n" not in text and len(text) < 80 else ""


def _classified(fields: PackageMetadata) -> str:
    found = [str(each) for each in fields.get_all("Classifier") or () if str(each).startswith(_CLASSIFIER)]
    return " AND ".join(sorted({_SPDX.get(name, name) for each in found if (name := each.removeprefix(_CLASSIFIER))}))
