"""``kerf new-driver``: a folder with a DRA driver for a new kind of hardware, which works at once.

It is the example of docs/write-a-backend.md under other names: its "hardware" is a folder of files, to be replaced step
by step by what talks to real cards, while its tests pass.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import click

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.output import print_text
from kerf_dra.driver.families.registry import describe_left_out, installed_families

_VENDOR: Final = "acme"
_NAME: Final = "npu"
"""What the example's vendor and family are called."""
_FILES: Final = ("acme_npu.py", "test_acme_npu.py", "pyproject.toml", "pods.yaml", "values.yaml")
_MODEL: Final = re.compile("acme|npu", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z][a-z0-9]{1,15}")
"""A name that is a part of domain names, of Python's modules and of variables. Device names begin with a family's, and
have at most 63 characters."""


class ExampleMissingError(PermanentError):
    """The installation is without the example."""


class FolderExistsError(PermanentError):
    """There is a folder where the new driver is to be."""


def rename(text: str, *, name: str, vendor: str) -> str:
    """Return a text of the example, in which family and vendor have other names, written as they were there.

    >>> rename("ACME_NPU: class AcmeBackend of acme_npu, NpuConfig", name="tpu", vendor="umbrella")
    'UMBRELLA_TPU: class UmbrellaBackend of umbrella_tpu, TpuConfig'
    """
    new = {_VENDOR: vendor, _NAME: name}

    def replace(match: re.Match[str]) -> str:
        old, word = match[0], new[match[0].lower()]
        if old.isupper():
            return word.upper()
        return word.capitalize() if old[0].isupper() else word

    return _MODEL.sub(replace, text)


def build_files(example: Mapping[str, str], *, name: str, vendor: str) -> Mapping[str, str]:
    """Return the files of a new driver by their names, made of those of the example."""
    return {
        rename(file, name=name, vendor=vendor): rename(text, name=name, vendor=vendor) for file, text in example.items()
    }


def read_example() -> Mapping[str, str]:
    """Return the files of the example by their names. Raises ExampleMissingError."""
    code = Path(str(resources.files("kerf_dra.driver"))).resolve()
    inside = code / "deploy" / _NAME
    folder = inside if inside.is_dir() else code.parent / "docs" / "examples" / _NAME
    if not folder.is_dir():
        raise ExampleMissingError(describe_left_out("kerf new-driver", "kerf_dra.driver.deploy"))
    return {file: (folder / file).read_text(encoding="utf-8") for file in _FILES}


@click.command(short_help="Make a folder with a DRA driver for new hardware, which works at once.")
@click.argument("name")
@option(
    "--vendor", default=_VENDOR, show_default=True, help="Who makes the hardware: NAME.VENDOR.example is the driver."
)
@option("--folder", type=click.Path(path_type=Path), help="The folder to make. [default: VENDOR-NAME]")
def command(name: str, vendor: str, folder: Path | None) -> int:
    """Make a folder with a DRA driver for hardware called NAME: a family, a backend, tests, pods and chart values.

    It is the example of docs/write-a-backend.md under your names. Its cards are folders of files until you write what
    talks to real ones. NAME and VENDOR are lower-case letters and digits.
    """
    for word, what in ((name, "NAME"), (vendor, "--vendor")):
        if _WORD.fullmatch(word) is None:
            raise click.UsageError(f"{what} {word!r}: 2 to 16 lower-case letters and digits, the first a letter")
    if name in installed_families():
        raise click.UsageError(f"NAME {name!r}: there is a family of this name (`kerf families`)")
    folder = folder or Path(f"{vendor}-{name}")
    files = build_files(read_example(), name=name, vendor=vendor)
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise FolderExistsError(f"{folder} exists: name another one with --folder") from error
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    print_text("\n".join(_list_steps(folder, name, vendor)))
    return 0


def _list_steps(folder: Path, name: str, vendor: str) -> Iterator[str]:
    yield f"{folder} has the driver {name}.{vendor}.example. Next:"
    place = folder if folder.is_absolute() else f"./{folder}"
    yield f"  pip install --editable '{place}[testing]'"
    yield f"  python -m pytest {folder}"
    yield f"  mkdir -p /tmp/{name}s/{name}-0 /tmp/{name}s/{name}-1"
    yield f"  kerf demo --backend {vendor}=/tmp/{name}s -f {folder}/pods.yaml"
    yield f"Then replace what {folder}/{vendor}_{name}.py does with files (docs/write-a-backend.md)."
