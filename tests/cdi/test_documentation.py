"""Every example in the README and in docstrings does what it says."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra import cdi

PACKAGE = Path(cdi.__file__).parent


def test_the_readme_is_true(tmp_path: Path) -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {"directory": str(tmp_path)}, "README.md", "cdi/README.md", 0)
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert results.attempted > 20
    assert results.failed == 0


def test_the_readme_names_every_command() -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    help_ = subprocess.run([sys.executable, "-m", "cdi", "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^    (\w+)", help_.partition("  COMMAND\n")[2], re.MULTILINE)
    assert len(commands) > 8
    for command in commands:
        assert f"`{command}" in text, command


def test_everything_public_is_listed_and_documented() -> None:
    assert sorted(cdi.__all__) == sorted(set(cdi.__all__))
    for name in cdi.__all__:
        value = getattr(cdi, name)
        assert not isinstance(value, type) or value.__doc__, name


def run(*lines: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_who_only_writes_loads_nothing_that_reads(tmp_path: Path) -> None:
    out = run(
        "import sys",
        "from pathlib import Path",
        "from kerf_dra import cdi",
        "from kerf_dra.cdi import ContainerEdits, Device, Kind, Spec, Store, encode_yaml",
        "edits = ContainerEdits(env=('A=b',))",
        "spec = Spec(kind=Kind.parse('acme.io/widget'), devices=(Device(name='w', container_edits=edits),))",
        f"Store(Path({str(tmp_path)!r})).write('a', spec)",
        "encode_yaml(spec)",
        "package = f'{cdi.__name__}.'",
        "print(*(name.removeprefix(package) for name in sys.modules if name.startswith(package)))",
        "print('yaml' in sys.modules, 'argparse' in sys.modules)",
        f"cdi.Cache([Path({str(tmp_path)!r})])",
        "print('yaml' in sys.modules)",
        "cdi.load(encode_yaml(spec))",
        "print('yaml' in sys.modules)",
        "cdi.read(b'[]')",
        "print('yaml' in sys.modules)",
    )
    modules, *yaml = out.splitlines()
    assert set(modules.split()) == {
        "document",
        "document.encoder",
        "document.fields",
        "document.rules",
        "document.validation",
        "errors",
        "names",
        "spec",
        "store",
        "versions",
    }
    # Files without surprises need no YAML parser either.
    assert yaml == ["False False", "False", "False", "True"]


def test_a_name_that_is_not_there_is_an_ordinary_mistake() -> None:
    with pytest.raises(AttributeError, match=r"module 'kerf_dra\.cdi' has no attribute 'Cash'"):
        getattr(cdi, "Cash")  # noqa: B009 - mypy knows that it is not there
    assert {*cdi.__all__} <= {*dir(cdi)}


def test_the_package_imports_nothing_but_the_standard_library_and_pyyaml() -> None:
    out = run(
        "import sys",
        "before = set(sys.modules)",
        "import kerf_dra.cdi.cli, kerf_dra.cdi.document.yaml_parser",
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}",
        "print(*sorted(new - set(sys.stdlib_module_names)))",
    )
    # Cython's own runtime comes with PyYAML's binding to libyaml.
    assert {name for name in out.split() if "cython" not in name} == {"kerf_dra", "yaml"}


def test_every_module_works_where_nothing_but_pyyaml_is_installed(tmp_path: Path) -> None:
    import yaml

    (tmp_path / "kerf_dra").mkdir()
    for name, package in (("kerf_dra/cdi", PACKAGE), ("yaml", Path(yaml.__file__).parent)):
        (tmp_path / name).symlink_to(package)
    program = "\n".join(
        (
            "import importlib, pkgutil, sys",
            f"sys.path.insert(0, {str(tmp_path)!r})",
            "import kerf_dra.cdi.cli",
            "for module in pkgutil.iter_modules(kerf_dra.cdi.__path__, 'kerf_dra.cdi.'):",
            "    importlib.import_module(module.name)",
            "sys.exit(kerf_dra.cdi.cli.main(['validate', *sys.argv[1:]]))",
        )
    )
    files = sorted(map(str, (Path(__file__).parents[1] / "data" / "cdi" / "good").iterdir()))
    # Isolated, and without site-packages.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program, *files], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
