"""``python -m tools.affected_tests [REVISION]``: prints the test modules that a change since REVISION (HEAD) touches.

A test is touched when it imports a changed module, at any number of steps: by an import statement at any place, by a
string that is the name of a module (``python -m NAME``, an entry point ``NAME:function``) or the beginning of names
(the subcommands of ``kerf`` are imported by an f-string), or by a ``conftest.py`` of a folder above. A changed file
that is no module counts for the package that it lies in. The tests of ``tests/structure`` read all files: they always
run.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.sources import PRODUCT, ROOT, dotted, modules, tree

_ALWAYS: Final = "tests/structure"


def main(arguments: list[str]) -> int:
    changed = list_changed(*arguments)
    if not changed:
        print("nothing has changed: name an earlier revision, as in `make quick BASE=HEAD~1`", file=sys.stderr)
        return 1
    print(_ALWAYS, *sorted(find_touched(changed, read_imports())), sep="\n")
    return 0


def list_changed(revision: str = "HEAD") -> list[Path]:
    """Return the files that differ from ``revision``, and those that git does not know yet and does not ignore."""
    commands = (["diff", "--name-only", "-z", revision], ["ls-files", "-z", "--others", "--exclude-standard"])
    listed = (subprocess.run(["git", *each], cwd=ROOT, capture_output=True, check=True).stdout for each in commands)
    return [Path(name) for output in listed for name in output.decode().split("\0") if name]


def read_imports() -> Mapping[str, set[str]]:
    """Return what each module of the product, the tools and the tests imports of them, by the names of modules."""
    paths = {dotted(path): path for path in modules(*PRODUCT, "tools", "tests")}
    return {name: {*_find_imports(name, path, paths.keys())} for name, path in paths.items()}


def _find_imports(name: str, path: Path, known: Iterable[str]) -> Iterator[str]:
    for found in _find_names(tree(path)):
        parts = found.split(".")
        yield from (module for end in range(1, len(parts) + 1) if (module := ".".join(parts[:end])) in known)
        if found.endswith("."):
            yield from (module for module in known if module.startswith(found))
    if name.startswith("tests."):
        folders = (path.parents[index] for index in range(len(path.parents) - 1))
        yield from (module for folder in folders if (module := dotted(folder / "conftest.py")) in known)


def _find_names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                yield from (f"{source}.{alias.name}" for alias in names)
            case ast.Constant(value=str(text)) if text.startswith(("kerf_dra.", "tests.", "tools.")):
                yield text.partition(":")[0]


def find_touched(changed: Iterable[Path], imports: Mapping[str, set[str]]) -> set[str]:
    """Return the paths of the test modules that import a changed one, or are one."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module, targets in imports.items():
        for target in targets:
            importers[target].add(module)
    reached: set[str] = set()
    waiting = [found for path in changed if (found := _module_of(path, imports)) is not None]
    while waiting:
        if (module := waiting.pop()) not in reached:
            reached.add(module)
            waiting += importers[module]
    tests = (module for module in reached if module.rpartition(".")[2].startswith("test_"))
    return {f"{module.replace('.', '/')}.py" for module in tests if not module.startswith("kerf_dra.")}


def _module_of(path: Path, imports: Mapping[str, set[str]]) -> str | None:
    """Return the module in ``path``, or the package that a file of another kind lies in; None: in none of them."""
    for candidate in (path, *(folder / "__init__.py" for folder in path.parents)):
        if candidate.suffix == ".py" and (name := dotted(candidate)) in imports:
            return name
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
