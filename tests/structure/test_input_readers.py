"""Files that people name are read by one reader, with limits; every other module that reads a file is listed here.

Thirty kilobytes of brackets once ended six commands, and ``/dev/zero`` filled memory, because each command opened and
parsed its files itself.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import modules, tree

PARSERS: Final = {
    "cdi/document/yaml_parser.py": "the parser of the package, by events",
    "driver/runtime/documents/yaml_loader.py": "the parser of the driver, by events",
}
"""Modules that parse YAML."""
KERNEL: Final = "files of the kernel: short, and written by nobody else"
OWN: Final = "files that Kerf itself has written, in folders of its own"
PACKAGED: Final = "files of the installed package"
ELSEWHERE: Final = {
    "cdi/store.py": "compares a file of the size that it is to have",
    "cdi/cli.py": "standard input, up to the limit of a spec",
    "driver/cli/catalog/new_driver.py": PACKAGED,
    "driver/cli/cluster/top.py": "standard input is asked whether it is a terminal, and not read",
    "driver/cli/demo.py": OWN,
    "driver/cli/fpga.py": "images, which are as large as they are: regular files only, by their first bytes and digest",
    "driver/demo/classic_scenario.py": PACKAGED,
    "driver/demo/environment.py": PACKAGED,
    "driver/demo/processes.py": OWN,
    "driver/families/gpu/catalog.py": PACKAGED,
    "driver/kubeletplugin/backends/kernel_files.py": KERNEL,
    "driver/kubeletplugin/backends/nvidia/cdi_hook.py": "a program of the driver's, compared with its copy",
    "driver/kubeletplugin/backends/nvidia/device_nodes.py": KERNEL,
    "driver/kubeletplugin/backends/nvidia/file_root.py": KERNEL,
    "driver/kubeletplugin/backends/nvidia/backend.py": KERNEL,
    "driver/kubeletplugin/backends/nvidia/system_files.py": KERNEL,
    "driver/kubeletplugin/backends/simulated/example_shells.py": PACKAGED,
    "driver/kubeletplugin/claims/checkpoint/checkpoint_digest.py": OWN,
    "driver/kubeletplugin/claims/device_metadata.py": OWN,
    "driver/kubeletplugin/discovery_handlers/built_in_handlers.py": KERNEL,
    "driver/kubeletplugin/handover.py": OWN,
    "driver/local/apiserver/meta/protobuf_messages.py": PACKAGED,
    "driver/local/kubelet/containers.py": OWN,
    "driver/mps/control_daemon.py": KERNEL,
    "driver/mps/documents.py": OWN,
    "driver/runtime/boot.py": KERNEL,
    "driver/view/server.py": PACKAGED,
    "driver/runtime/documents/input_file.py": "the reader: standard input",
}
"""Modules, beside the readers with limits, that read files which no person names, with what they are."""
IMITATED: Final = "driver/testing/"
"""Stand-ins for hardware, and the tests of backends, which read what they have written."""
_READS: Final = {"read_text", "read_bytes"}
_DECODERS: Final = {"json.load", "json.loads", "tomllib.load", "sys.stdin"}
_YAML: Final = {
    "load",
    "load_all",
    "safe_load",
    "safe_load_all",
    "full_load",
    "unsafe_load",
    "parse",
    "compose",
    "scan",
}


def find_reads(node: ast.AST) -> Iterator[str]:
    """Yield each expression below ``node`` that reads a whole file, or standard input."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            name = ast.unparse(inner)
            if inner.attr in _READS or name in _DECODERS:
                yield name
        if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith("open") and len(inner.args) > 0:
            mode = inner.args[0]
            if isinstance(mode, ast.Constant) and mode.value in ("r", "rb"):
                yield ast.unparse(inner)


def find_yaml(node: ast.AST) -> Iterator[str]:
    """Yield each use of PyYAML below ``node`` that parses."""
    for inner in ast.walk(node):
        is_name = isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "yaml"
        if is_name and isinstance(inner, ast.Attribute) and (inner.attr in _YAML or inner.attr.endswith("Loader")):
            yield ast.unparse(inner)


def test_whole_files_are_read_by_the_readers_or_for_a_reason() -> None:
    found = {str(path) for path in modules("api", "cdi", "driver") if [*find_reads(tree(path))]}
    found = {path for path in found if not path.startswith(IMITATED)}
    check("modules that read files by themselves", found - ELSEWHERE.keys())
    check("modules listed here that read no file", ELSEWHERE.keys() - found)


def test_yaml_is_parsed_by_events_alone() -> None:
    found = {str(path) for path in modules("api", "cdi", "driver") if [*find_yaml(tree(path))]}
    assert found == PARSERS.keys()


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("path.read_bytes()", 1),
        ("json.loads(sys.stdin.buffer.read())", 2),
        ("with path.open('rb') as file: pass", 1),
        ("path.write_text('r')", 0),
        ("read_file(path)", 0),
    ],
)
def test_a_read_is_found(source: str, count: int) -> None:
    assert len([*find_reads(ast.parse(source))]) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [("yaml.safe_load(text)", 1), ("yaml.load(text, Loader=yaml.CSafeLoader)", 2), ("yaml.safe_dump(value)", 0)],
)
def test_a_parser_is_found(source: str, count: int) -> None:
    assert len([*find_yaml(ast.parse(source))]) == count
