"""What pages say of commands, hardware, releases and installation is what the code has."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from kerf_dra.driver.cli import COMMANDS, kerf
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.scheduling.scheduler_faults import FAULTS, Feature
from tests.structure.rules import check
from tools.sources import ROOT, files, modules, text

_README: Final = Path("README.md")
_ADMINISTRATORS: Final = Path("docs/for-administrators.md")
_GLOSSARY: Final = Path("docs/glossary.md")
_TROUBLESHOOTING: Final = Path("docs/troubleshooting.md")
_COMPARISON: Final = Path("docs/comparison.md")
_ENVIRONMENT: Final = Path("docs/reference/container-environment.md")
_EXAMPLES: Final = Path("deploy/examples")
_INDEX: Final = Path("docs/examples/README.md")

_BACKENDS: Final[Mapping[str, str]] = {
    # backend: its page
    "nvidia": "nvidia",
    "intel": "intel.md",
    "dfl": "fpga.md",
    "xrt": "alveo.md",
    "slots": "fpga-boards.md",
    "discovered": "discovered-devices.md",
}
"""Where the links begin by which a page leads to a kind of hardware."""
_HARDWARE: Final = (*_BACKENDS.values(), "fpga.md#virtual-functions")
"""The kinds of hardware, with FPGA slots that containers have by VFIO."""
_LISTS_OF_HARDWARE: Final = (
    # page, and its section; empty: all of it
    (_ADMINISTRATORS, "Which hardware works"),
    (_ADMINISTRATORS, "Tasks"),
    (_GLOSSARY, ""),
    (_TROUBLESHOOTING, "Messages of one kind of hardware"),
    (_COMPARISON, ""),
    (_ENVIRONMENT, "Device nodes and files"),
)
_LISTS_OF_DRIVERS: Final = (
    (_README, "The command line"),
    (_GLOSSARY, ""),
    (_TROUBLESHOOTING, "Taints of devices"),
    (Path("docs/asking-for-devices.md"), ""),
    (Path("docs/asking-for-devices.md"), "Your own DeviceClass"),
    (Path("driver/cli/daemons/kubelet_plugin.py"), ""),
    (Path("docs/install.md"), ""),
)
_INSTALLED_FROM: Final = re.compile(r"pip install\s+['\"]?([\w.-]*)(?:\[(\w+)\])?")
_RELEASE: Final = re.compile(r"(?<!:)\b1\.\d\d(?:\.\d+)?")
"""A release of Kubernetes; after a colon it is that of an image."""
_EXTRA: Final = re.compile(r"^([a-z]+) = \[$", re.MULTILINE)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def section(page: Path, title: str) -> str:
    """The text below a heading of the second level; without a title the whole page."""
    if not title:
        return text(page)
    [found] = [part for part in re.split(r"^## ", text(page), flags=re.MULTILINE) if part.startswith(f"{title}\n")]
    return found


def first_cells(table: str) -> list[str]:
    return re.findall(r"^\| \[?`?([^`|\]]+?)`?\]?(?:\([^)]*\))? \|", table, re.MULTILINE)


def test_every_backend_of_kerfs_has_a_page() -> None:
    backends = {name for family in BUILT_IN for name in family.backends}
    check("write its page, and where its links begin into _BACKENDS of this module", backends - {*_BACKENDS})
    check("no family has this backend: take it off _BACKENDS", {*_BACKENDS} - backends)


@pytest.mark.parametrize(("page", "title"), _LISTS_OF_HARDWARE, ids=str)
def test_a_page_that_lists_hardware_leads_to_each_kind(page: Path, title: str) -> None:
    """Intel's GPUs, Alveo cards, VFIO and discovered devices were missing in several."""
    links = re.findall(r"\]\((?:\.\./)?([^)]+)\)", section(page, title))
    check("no link leads to", {kind for kind in _HARDWARE if not any(link.startswith(kind) for link in links)})


def test_administrators_and_the_glossary_have_every_backend_by_its_name() -> None:
    named = set(re.findall(r"\(backend `(\w+)`\)", section(_ADMINISTRATORS, "Which hardware works")))
    assert named == {*_BACKENDS, "simulated"}
    [row] = [line for line in text(_GLOSSARY).splitlines() if line.startswith("| backend |")]
    assert set(re.findall(r"`([\w-]+)`", row)) == named


@pytest.mark.parametrize(("page", "title"), _LISTS_OF_DRIVERS, ids=str)
def test_a_page_that_lists_drivers_has_the_driver_of_each_family(page: Path, title: str) -> None:
    said = section(page, title)
    driver = r"(?<![\w.\"-])%s"  # which is not in an expression, nor the end of another name
    check("not there", {each.driver for each in BUILT_IN if not re.search(driver % re.escape(each.driver), said)})


def test_the_glossary_has_every_family_and_is_in_order() -> None:
    [row] = [line for line in text(_GLOSSARY).splitlines() if line.startswith("| family |")]
    assert set(re.findall(r"`([\w-]+)`", row)) == {family.name for family in BUILT_IN}
    words = first_cells(text(_GLOSSARY).split("## Terms of the code")[0])[1:]
    assert words == sorted(words, key=str.lower)


def test_the_readme_has_every_command() -> None:
    """``kerf fpga`` and ``kerf placement`` were missing."""
    named = {cell.removeprefix("kerf ") for cell in first_cells(section(_README, "The command line"))} - {"command"}
    check("add its row to the table of README.md, The command line", {f"kerf {name}" for name in {*COMMANDS} - named})
    check("README.md has a row of a command that is not there", named - {*COMMANDS})


@pytest.mark.parametrize("page", [_README, Path("driver/cli/__init__.py")], ids=str)
def test_what_is_said_of_models_names_no_family_without_models(page: Path) -> None:
    """FPGA shells were said to be listed: they are objects of a cluster."""
    [said] = re.findall(r'^\| `kerf models` \|(.*)$|"models": (.*)$', text(page), re.MULTILINE)
    without = {family.name for family in BUILT_IN if not family.geometries()}
    assert without >= {"fpga"}
    assert [name for name in without if re.search(rf"\b{name}\b", " ".join(said), re.IGNORECASE)] == []


def options(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Option]]:
    """The options of a command and of those below it, each with the words that call it."""
    for each in command.get_params(context):
        if isinstance(each, click.Option) and not {"--help", "--version"} & {*each.opts}:
            yield context.command_path, each
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from options(inner, click.Context(inner, info_name=name, parent=context))


def test_every_option_has_an_environment_variable_but_those_that_the_help_excepts() -> None:
    found = list(options(kerf, click.Context(kerf, info_name="kerf")))
    assert len({path for path, _ in found}) > len(COMMANDS) - 5
    check("no variable", {f"{path} {each.opts[0]}" for path, each in found if not each.show_envvar})
    for said in (kerf.help or "", section(_README, "The command line"), text(Path("docs/reference/command-line.md"))):
        assert re.search(r"[Ee]very option[^.]* \(?(but|not) those of (`kerf )?cdi", " ".join(said.split())), said[:200]


def test_nothing_says_that_an_index_has_kerf() -> None:
    """``pip install kerf-dra[nvidia]`` finds nothing: the extras are those of the checkout."""
    extras = set(_EXTRA.findall(text(Path("pyproject.toml")).split("[project.optional-dependencies]")[1]))
    wrong = set()
    for path in files():
        if path.suffix in (".md", ".py") and path.parts[0] not in ("tests", "CHANGELOG.md"):
            for place, extra in _INSTALLED_FROM.findall(text(path)):
                if place.startswith("kerf") or (extra and (place != "." or extra not in extras)):
                    wrong.add(f"{path}: {place}[{extra}]")
    check("no index has it", wrong)


def test_the_first_page_says_how_many_packages_a_demo_needs() -> None:
    locked = [
        line
        for lock in ("requirements.lock", "requirements-build.lock")
        for line in text(Path(lock)).splitlines()
        if re.match(r"[\w.-]+==", line)
    ]
    assert f"Kerf and the {len(locked)} packages that it needs" in text(Path("docs/getting-started.md"))


def test_the_first_page_says_which_programs_of_the_demo_are_stand_ins() -> None:
    """All but the hardware were said to be those of a real cluster."""
    packages = {
        path.parts[2] for path in modules("driver") if path.is_relative_to("driver/local") and len(path.parts) > 3
    }
    words = {"apiserver": "API server", "scheduler": "scheduler", "controllers": "controllers", "kubelet": "kubelets"}
    assert {*words} == packages
    page = " ".join(text(Path("docs/getting-started.md")).split())
    [said] = re.findall(r"[^.;:]* are Kerf's stand-ins in Python", page)
    check("not said to be a stand-in", {word for word in words.values() if word not in said})


def test_the_index_has_every_example() -> None:
    folders = {path.parts[2] for path in files() if path.is_relative_to(_EXAMPLES)}
    assert sorted(set(first_cells(text(_INDEX).split("Without a cluster:")[0])) - {"example"}) == sorted(folders)


def deviceclasses(document: Any) -> Iterator[str]:
    """The names of classes that requests name, at any depth."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key in ("deviceClassName", "resourceClassName"):
                yield value
            yield from deviceclasses(value)
    elif isinstance(document, list):
        for each in document:
            yield from deviceclasses(each)


def test_an_example_contains_the_classes_that_it_uses() -> None:
    missing = set()
    for folder in (ROOT / _EXAMPLES).iterdir():
        found = [each for path in folder.glob("*.yaml") for each in yaml.safe_load_all(path.read_text()) if each]
        classes = {each["metadata"]["name"] for each in found if each["kind"] == "ResourceClass"}
        missing |= {f"{folder.name}: {name}" for name in deviceclasses(found) if name not in classes}
    check("no such class", missing)


@pytest.mark.parametrize("example", ["gpu-in-shares", "intel-fractions"])
def test_examples_of_shares_name_the_release_from_which_shares_are_published(example: str) -> None:
    """1.35 was named, where shares are left off for a fault of kube-scheduler."""
    [fixed] = {str(fault.fixed_in) for fault in FAULTS if fault.left_off is Feature.SHARES}
    named = {
        path.name: set(_RELEASE.findall(text(path)))
        for path in files()
        if path.is_relative_to(_EXAMPLES / example) and _RELEASE.search(text(path))
    }
    assert "README.md" in named
    assert [page for page, releases in named.items() if releases != {fixed}] == []


def test_the_page_of_classes_names_the_columns_of_kubectl() -> None:
    """READY was said to be whether anything matches: that is MATCHING."""
    [version] = yaml.safe_load(text(Path("deploy/crds/kerf.dev_resourceclasses.yaml")))["spec"]["versions"][:1]
    columns = {each["name"].upper(): each["jsonPath"] for each in version["additionalPrinterColumns"]}
    said = " ".join(text(_EXAMPLES / "resource-classes/README.md").split())
    assert 'type=="Ready"' in columns["READY"]
    assert "`READY` is `True` for a class that claims can name" in said
    assert columns["MATCHING"].endswith("matchingDevices.total")
    assert "`MATCHING` is the number of published devices" in said


def test_the_page_of_small_partitions_names_the_largest_that_is_left() -> None:
    """They were said to be next to one another."""
    page = text(_EXAMPLES / "gpu-small/README.md")
    places = [int(at) for at in re.findall(r"gpu-0-1g-10gb-at-(\d)$", page, re.MULTILINE)]
    assert len(places) == 2
    [model] = [one for one in GPU.geometries() if one.model == "h100-80gb-sxm"]
    _, largest = max(
        (spec.placement.size, str(spec.profile).partition("+")[0])
        for spec in model.specs
        if spec.placement is not None and not any(spec.placement.overlaps(Placement(at, 1)) for at in places)
    )
    assert f"`{largest}` is still free" in " ".join(page.split())
    assert ("next to" in page) is (abs(places[0] - places[1]) == 1)
