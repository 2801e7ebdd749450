"""Data flows down as arguments and up as return values or one observable state: few callables go to constructors.

What is left are clocks, how work in threads begins, queries of the kubelet, and edges of the process.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.rules import check

PLUGIN = Path(__file__).parents[2] / "driver/kubeletplugin"
MOST = 30
SOURCES = {
    path: ast.parse(path.read_text())
    for path in sorted(PLUGIN.rglob("*.py"))
    if PLUGIN / "backends" not in path.parents
}


def test_few_parameters_of_constructors_are_callables() -> None:
    found = [f"{path.name}: {owner}({name})" for path, owner, name, _ in list_parameters() if is_callable(_)]
    assert len(found) <= MOST, "\n".join(found)


def test_no_parameter_of_a_constructor_has_a_lambda_as_its_default() -> None:
    found = [
        f"{path.name}: {node.name}"
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for default in (*method.args.defaults, *method.args.kw_defaults)
        if isinstance(default, ast.Lambda)
    ]
    check("a default that does nothing hides who should be called", found)


def test_the_wiring_of_the_plugin_has_no_lambda() -> None:
    found = [
        f"plugin.py:{node.lineno}" for node in ast.walk(SOURCES[PLUGIN / "plugin.py"]) if isinstance(node, ast.Lambda)
    ]
    check("parts are handed to each other as objects", found)


def list_parameters() -> Iterator[tuple[Path, str, str, ast.expr]]:
    """List file, class, name and annotation of each parameter of a constructor, and of each field of a dataclass."""
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            is_dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                    arguments = member.args
                    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                        if argument.annotation is not None:
                            yield path, node.name, argument.arg, argument.annotation
                elif is_dataclass and isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield path, node.name, member.target.id, member.annotation


def is_callable(annotation: ast.expr) -> bool:
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return bool(names & {"Callable", *ALIASES})


def list_aliases() -> Iterator[str]:
    """List the names that stand for a callable at the top of a module, whether annotated or not."""
    for tree in SOURCES.values():
        for node in tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Subscript() as value) if not is_call(value):
                    yield name
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value) if not is_call(value):
                    yield name


def is_call(value: ast.Subscript) -> bool:
    """Whether a subscript is another thing than a type of callables."""
    return not (isinstance(value.value, ast.Name) and value.value.id == "Callable")


ALIASES = frozenset(list_aliases())


def test_aliases_of_callables_are_found() -> None:
    assert "ListDeviceUses" in ALIASES
