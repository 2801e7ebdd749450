"""Families and backends by name: Kerf's own and installed ones, with errors that name what is installed."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

import pytest

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.registry import BACKENDS_GROUP, BUILT_IN, GROUP, FamilyUnavailableError
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.backends.eventless import EventlessBackend
from kerf_dra.driver.kubeletplugin.backends.registry import (
    BackendChoice,
    BackendUnavailableError,
    choose_families,
    load_backends,
)
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.partitions.geometry import Card

HERE = "tests.kubeletplugin.backends.test_registry"
NPU = Family(
    name="npu",
    driver=DriverName("npu.acme.example"),
    attributes={name: GPU.attributes[name] for name in ("cut", "model", "uuid", "node")},
    capacities={},
    backends={
        "acme": "kerf_dra.driver.kubeletplugin.backends.simulated:open_gpus",
        "missing": "no_such_vendor.kerf:open_backend",
        "nameless": "kerf_dra.driver.kubeletplugin.backends.simulated:no_such_name",
        "broken": f"{HERE}:open_broken",
    },
)
INSTALLED = EntryPoints((EntryPoint(name="npu", value=f"{HERE}:NPU", group=GROUP), *entry_points(group=BACKENDS_GROUP)))
SIMULATED = BackendChoice(name="simulated")


def open_broken(config: Path | None) -> Backend:
    raise ZeroDivisionError(str(config))


def choose(names: tuple[str, ...], *backends: str) -> list[tuple[str, list[str]]]:
    choices = [BackendChoice(name=name) for name in backends]
    chosen = choose_families(names, choices, installed=INSTALLED)
    return [(one.family.name, [backend.name for backend in one.backends]) for one in chosen]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "simulated.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: a30}, {kind: fpga, shell: quad}]\n")
    return path


def test_without_names_every_family_that_has_a_chosen_backend_is_hosted_with_its_own() -> None:
    assert choose((), "simulated") == [("gpu", ["simulated"]), ("fpga", ["simulated"])]
    assert choose((), "acme") == [("npu", ["acme"])]
    assert choose((), "acme", "simulated") == [("gpu", ["simulated"]), ("fpga", ["simulated"]), ("npu", ["acme"])]


def test_named_families_are_hosted_once_each_in_the_order_of_their_names() -> None:
    assert choose(("fpga", "gpu", "fpga"), "simulated") == [("fpga", ["simulated"]), ("gpu", ["simulated"])]
    assert choose(("gpu",), "simulated") == [("gpu", ["simulated"])]


def test_an_unknown_family_is_an_error_with_the_installed_ones_and_a_suggestion() -> None:
    message = r"no family 'fgpa'; installed are: fpga, gpu, gpu-intel, npu, shared; did you mean 'fpga'\?"
    with pytest.raises(FamilyUnavailableError, match=message):
        choose(("fgpa",), "simulated")


def test_an_unknown_backend_is_an_error_with_the_installed_ones_and_a_suggestion() -> None:
    message = r"no backend 'simulate'; installed are: .*nvidia, .*simulated, slots, xrt; did you mean 'simulated'\?"
    with pytest.raises(BackendUnavailableError, match=message):
        choose((), "simulate")


def test_a_backend_that_resembles_no_other_gets_no_suggestion() -> None:
    with pytest.raises(BackendUnavailableError, match=r"no backend 'xyz'; installed are: [\w, -]+$"):
        choose((), "xyz")


def test_a_named_family_without_a_chosen_backend_is_refused_with_the_backends_that_it_has() -> None:
    with pytest.raises(BackendUnavailableError, match="family 'npu' has none of the chosen backends; it has: acme"):
        choose(("gpu", "npu"), "simulated")


def test_a_backend_of_none_of_the_named_families_is_refused_with_the_family_that_has_it() -> None:
    with pytest.raises(BackendUnavailableError, match="'acme' is of none of the chosen families; choose npu, too"):
        choose(("gpu",), "simulated", "acme")


def test_a_backend_chosen_twice_is_refused() -> None:
    with pytest.raises(BackendUnavailableError, match="'simulated' is chosen twice"):
        choose((), "simulated", "simulated")


def test_each_familys_simulated_backend_has_its_own_cards_of_one_document(config: Path) -> None:
    choice = BackendChoice(name="simulated", config=config)
    chosen = choose_families((), [choice])
    assert [(one.family.driver, one.backends) for one in chosen] == [(one.driver, (choice,)) for one in (GPU, FPGA)]
    for one in chosen:
        (backend,) = load_backends(one.family, one.backends)
        assert isinstance(backend, SimulatedBackend)


@pytest.mark.parametrize("name", ["missing", "nameless"])
def test_a_backend_that_cannot_be_imported_is_named_with_family_and_cause(name: str) -> None:
    message = rf"backend '{name}' of family 'npu' \(.*\) cannot be imported: .*no_such"
    with pytest.raises(BackendUnavailableError, match=message):
        load_backends(NPU, [BackendChoice(name=name)])


def test_a_backend_that_raises_anything_is_named() -> None:
    with pytest.raises(BackendUnavailableError, match=r"'broken' of family 'npu' .* fails to open: ZeroDivisionError"):
        load_backends(NPU, [BackendChoice(name="broken")])


def test_what_a_backend_says_of_its_configuration_is_passed_on(tmp_path: Path) -> None:
    (gpu,) = choose_families(("gpu",), [SIMULATED])
    with pytest.raises(InvalidDocumentError, match="nowhere"):
        load_backends(gpu.family, [replace(SIMULATED, config=tmp_path / "nowhere.yaml")])


REAL = [(family.name, backend) for family in BUILT_IN for backend in family.backends]


@pytest.mark.parametrize(("family", "backend"), REAL)
def test_a_backend_for_hardware_is_there_without_reading_what_is_installed(family: str, backend: str) -> None:
    script = (
        "import sys; from kerf_dra.driver.kubeletplugin.backends.registry import *; "
        "[chosen] = choose_families(sys.argv[1:2], [BackendChoice(name=sys.argv[2])]); "
        "[backend] = load_backends(chosen.family, chosen.backends); "
        "print(backend.name, 'importlib.metadata' in sys.modules)"
    )
    command = [sys.executable, "-c", script, family, backend]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == f"{backend} False\n"


def test_a_backend_that_kerf_was_installed_without_is_named_with_what_to_do() -> None:
    """Kerf's image has no simulated hardware, and its metadata still names the backends."""
    entry = EntryPoint(name="npu.left-out", value="kerf_dra.driver.left_out.deep:open_backend", group=BACKENDS_GROUP)
    choice = BackendChoice(name="left-out")
    (chosen,) = choose_families((), [choice], installed=EntryPoints((*INSTALLED, entry)))
    message = (
        r"backend 'left-out' of family 'npu' \(kerf_dra\.driver\.left_out\.deep:open_backend\) is not in this "
        r"installation, which was built without simulated hardware \(there is no kerf_dra\.driver\.left_out\): "
        r"build the image with `make image ARGS=--with-simulated`, or install the whole package kerf-dra"
    )
    with pytest.raises(BackendUnavailableError, match=message):
        load_backends(chosen.family, [choice])


def test_a_backend_that_kerf_was_installed_without_is_not_listed() -> None:
    entry = EntryPoint(name="npu.left-out", value="kerf_dra.driver.left_out:open_backend", group=BACKENDS_GROUP)
    with pytest.raises(BackendUnavailableError) as caught:
        choose_families((), [BackendChoice(name="xyz")], installed=EntryPoints((*INSTALLED, entry)))
    assert "simulated" in str(caught.value)
    assert "left-out" not in str(caught.value)


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
    family = replace(NPU, backends={"vendor": f"{HERE}:{factory}"})
    with pytest.raises(BackendUnavailableError, match=problem):
        load_backends(family, [BackendChoice(name="vendor")])
