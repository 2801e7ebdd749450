"""Finds the references in a text's code spans that do not exist.

Checked are paths below the repository's folders, bare file names that end in ``.py`` or ``.md``, modules and what is
defined in them, and the commands that this repository gives: ``make TARGET``, ``kerf SUBCOMMAND`` with
its options, and ``python -m MODULE``. Everything else in a span is somebody else's.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

import click

from kerf_dra.driver.cli import kerf
from tools.sources import IMPORT_PACKAGE, PRODUCT, ROOT, dotted, files, text, tree

ELSEWHERE: Final[Mapping[str, str]] = {
    "api/errors": "a package of k8s.io/apimachinery",
    "api/openapi-spec/swagger.json": "a file of kubernetes/kubernetes",
    "config.md": "a page of the OCI runtime specification",
    "driver/pool": "how a pool is written in messages",
    "driver/pool/device": "how a device is written in messages",
}
"""What looks like a path of ours and is none."""

_FOLDERS: Final = r"(?:api|cdi|deploy|docs|driver|tests|tools|\.ci|\.github)"
_PATH: Final = re.compile(rf"{_FOLDERS}/[\w./*-]*|[\w./-]+\.(?:py|md)")
_MODULE: Final = re.compile(r"(?:kerf_dra|api|cdi|driver|tests|tools)(?:\.[A-Za-z_]\w*)+")
_TEST: Final = re.compile(r"(?P<path>[\w./-]+\.py)::(?P<test>\w+)")
_TARGET: Final = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)
_WORD: Final = re.compile(r"[a-z][a-z0-9-]*")
_OPTION: Final = re.compile(r"--?[a-z][a-z-]*")
_ENDS: Final = frozenset({"|", ">", "&&", ""})
"""Words behind which another command begins; empty: one that was nothing but punctuation."""
_WITHOUT: Final = frozenset({"cdi"})
"""Subcommands whose options are not click's."""


def missing(span: str) -> Iterator[str]:
    """What the code span ``span`` names that is not there."""
    words = [word.strip("()[]{},:;\"'…") for word in span.split()]
    for word in words:
        if word not in ELSEWHERE and not _is_there(word.rstrip(".")):
            yield word
    if not _is_command_there(words):
        yield " ".join(words)


def _is_there(word: str) -> bool:
    if found := _TEST.fullmatch(word):
        return any(_defines(path, found["test"]) for path in _places(found["path"]))
    if _PATH.fullmatch(word):
        return bool(_places(word))
    return not _MODULE.fullmatch(word) or _is_module_there(word) or bool(_places(word))


@cache
def _places(name: str) -> list[Path]:
    """The files and folders that a path means: from the root, or as the end of a path as a bare file name does."""
    if re.match(rf"{_FOLDERS}/", name):
        return [path.relative_to(ROOT) for path in ROOT.glob(name.rstrip("/"))]
    return [path for path in files() if f"/{path.as_posix()}".endswith(f"/{name}")]


@cache
def _modules() -> Mapping[str, Path]:
    return {dotted(path): path for path in files() if path.suffix == ".py"}


def _is_module_there(name: str) -> bool:
    """A module or package, or what one defines at its top level; what follows is not looked at.

    ``cdi.Store`` is as good a name as ``kerf_dra.cdi.Store``: it is what code says that has imported ``cdi``.
    """
    if name.partition(".")[0] in PRODUCT:
        name = f"{IMPORT_PACKAGE}.{name}"
    parts = name.split(".")
    while ".".join(parts) not in _modules():
        if len(parts) == 1:
            return ROOT.joinpath(*name.split(".")).is_dir()
        parts.pop()
    path = _modules()[".".join(parts)]
    rest = name.split(".")[len(parts) :]
    return not rest or ROOT.joinpath(*name.split(".")).is_dir() or _defines(path, rest[0])


def _defines(path: Path, name: str) -> bool:
    return name in _top_level_names(path)


@cache
def _top_level_names(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in tree(path).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in node.names}
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() as exported):
                names |= {*ast.literal_eval(exported)}
            case ast.Assign(targets=targets):
                names |= {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return frozenset(names)


def _is_command_there(words: list[str]) -> bool:
    match words:
        case ["make", *arguments]:
            return all(word in _TARGET.findall(text(Path("Makefile"))) for word in arguments if _WORD.fullmatch(word))
        case ["kerf", *arguments]:
            return _is_subcommand_there(kerf, arguments)
        case ["python", "-m", module, *_] if _MODULE.fullmatch(module):
            return _modules().keys() & {module, f"{module}.__main__"} != set()
        case _:
            return True


def _is_subcommand_there(command: click.Command, arguments: list[str]) -> bool:
    """A first word that is no option and no placeholder is a subcommand, where there are any.

    What begins with a hyphen, up to a pipe, is an option of the last of them.
    """
    if isinstance(command, click.Group) and arguments and _WORD.fullmatch(arguments[0]):
        found = command.get_command(click.Context(command), arguments[0])
        return found is not None and _is_subcommand_there(found, arguments[1:])
    known = {name for param in command.get_params(click.Context(command)) for name in (*param.opts, "--help", "-h")}
    given = {word.partition("=")[0] for word in takewhile(lambda word: word not in _ENDS, arguments)}
    return command.name in _WITHOUT or {word for word in given if _OPTION.fullmatch(word)} <= known
