"""Backends by name: Kerf's own and from entry points, with errors that name what is installed."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from api.errors import InvalidDocumentError
from driver.kubeletplugin.backends.eventless import EventlessBackend
from driver.kubeletplugin.backends.registry import GROUP, BackendChoice, BackendUnavailableError, load_backends
from driver.kubeletplugin.backends.simulated import SimulatedBackend
from driver.partitions.geometry import Card

VENDOR = EntryPoint(name="vendor", value="driver.kubeletplugin.backends.simulated:open_backend", group=GROUP)
MISSING = EntryPoint(name="missing", value="no_such_vendor.kerf:open_backend", group=GROUP)
NAMELESS = EntryPoint(name="nameless", value="driver.kubeletplugin.backends.simulated:no_such_name", group=GROUP)
INSTALLED = (VENDOR, MISSING, NAMELESS)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "simulated.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: a30}]\n")
    return path


def test_chosen_backends_are_opened_with_their_configuration(config: Path) -> None:
    (backend,) = load_backends([BackendChoice(name="vendor", config=config)], installed=INSTALLED)
    assert isinstance(backend, SimulatedBackend)


def test_nothing_is_loaded_that_was_not_chosen() -> None:
    assert load_backends([], installed=INSTALLED) == []


def test_an_unknown_backend_is_an_error_with_the_known_names() -> None:
    with pytest.raises(BackendUnavailableError, match="'nvidia'; installed are: missing, nameless, simulated, vendor"):
        load_backends([BackendChoice(name="nvidia")], installed=INSTALLED)


def test_where_no_vendor_is_installed_the_error_names_our_own() -> None:
    with pytest.raises(BackendUnavailableError, match=r"installed are: simulated$"):
        load_backends([BackendChoice(name="nvidia")], installed=())


@pytest.mark.parametrize("name", ["missing", "nameless"])
def test_a_backend_that_cannot_be_imported_is_named_with_the_cause(name: str) -> None:
    with pytest.raises(BackendUnavailableError, match=rf"backend '{name}' \(.*\) cannot be imported: .*no_such"):
        load_backends([BackendChoice(name=name)], installed=INSTALLED)


def test_a_backend_chosen_twice_is_refused(config: Path) -> None:
    choices = [BackendChoice(name="simulated", config=config)] * 2
    with pytest.raises(BackendUnavailableError, match="'simulated' is chosen twice"):
        load_backends(choices, installed=INSTALLED)


def test_what_a_backend_says_of_its_configuration_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match="nowhere"):
        load_backends([BackendChoice(name="simulated", config=tmp_path / "nowhere.yaml")], installed=INSTALLED)


def test_the_simulated_backend_is_there_without_reading_what_is_installed(config: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from driver.kubeletplugin.backends.registry import *; "
        "[backend] = load_backends([BackendChoice(name='simulated', config=Path(sys.argv[1]))]); "
        "print(backend.name, 'importlib.metadata' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script, str(config)], capture_output=True, text=True, check=True)
    assert found.stdout == "simulated False\n"


def open_too_early() -> SimulatedBackend:
    raise AssertionError("it is not called")


class WithoutSurvey(EventlessBackend):
    name = "incomplete"

    def discover(self) -> list[Card]:
        return []


def open_incomplete(config: Path | None) -> WithoutSurvey:
    return WithoutSurvey()


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("open_too_early", r"cannot be made: it takes \(\); it must take \(config\)"),
        ("open_incomplete", r"breaks the protocol of backends: it has no method survey\(card_uuid\)"),
    ],
)
def test_a_backend_that_cannot_be_called_as_the_protocol_says_is_refused(factory: str, problem: str) -> None:
    point = EntryPoint(name="vendor", value=f"{__name__}:{factory}", group=GROUP)
    with pytest.raises(BackendUnavailableError, match=problem):
        load_backends([BackendChoice(name="vendor")], installed=[point])
