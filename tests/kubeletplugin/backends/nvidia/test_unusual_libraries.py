"""A library of NVIDIA's that lacks something or contradicts itself: that is named once, and the rest is used."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.session import NvmlFailedError
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import ComputeMode
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from kerf_dra.driver.testing.nvml import CardDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.layout import assign, compiler_definitions
from kerf_dra.driver.testing.nvml.library import SONAME, compile_library
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER
from tests.fakes.nvml_functions import READS
from tests.kubeletplugin.backends.nvidia.machine import H100, NvidiaMachineUnderTest
from tools.generate.nvml_functions import ROOT, SOURCE

pytestmark = NEEDS_COMPILER

OLDER = {"FUNCTION_NOT_FOUND": 13, "ARGUMENT_VERSION_MISMATCH": 25}
"""What a library answers that lacks a function, or has another version of its structure."""
NEEDED = {
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
}
"""Functions without which no card is known."""
USED = {
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
}
"""Other functions that a discovery, a survey of whole cards and a look at their health call."""
UNCOUNTED = "nvmlDeviceGetCount_v2"
UNOPENED = "nvmlSystemGetDriverVersion"


def discover_often(backend: NvidiaBackend) -> Sequence[Card]:
    """Discover, survey and look at the health of the cards three times, and return what was found the last time."""
    found: Sequence[Card] = ()
    for _ in range(3):
        found = backend.discover()
        for card in found:
            with suppress(HardwareBusyError):
                backend.survey(card.uuid)
        backend.wait_for_events(0)
    return found


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("code", OLDER)
@pytest.mark.parametrize("function", sorted({*READS} - {UNCOUNTED, UNOPENED}))
def test_a_function_that_the_library_lacks_is_named_once_and_the_others_are_used(
    function: str, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.hardware.add_fault(function, error=OLDER[code], times=None)
    backend = machine.open_backend()
    backend.open()
    cards = discover_often(backend)
    backend.close()
    assert len(cards) == (0 if function in NEEDED else 2)
    logged = messages(caplog)
    assert len(logged) == len({*logged}), "each is said once"
    named = [line for line in logged if function.removesuffix("_v2").removesuffix("_v3").removesuffix("V") in line]
    assert len(named) == (2 if function in NEEDED else function in USED)


@pytest.mark.parametrize("code", OLDER)
def test_a_library_that_cannot_count_its_cards_is_refused_by_name(code: str, tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.hardware.add_fault(UNCOUNTED, error=OLDER[code], times=None)
    backend = machine.open_backend()
    backend.open()
    with pytest.raises(HardwareRefusedError, match=r"^nvmlDeviceGetCount: "):
        backend.discover()


@pytest.mark.parametrize("code", OLDER)
def test_a_library_that_does_not_say_its_version_is_refused_with_the_functions_name(code: str, tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.hardware.add_fault(UNOPENED, error=OLDER[code], times=None)
    with pytest.raises(NvmlFailedError, match="nvmlSystemGetDriverVersion: "):
        machine.open_backend().open()


def discover_with(machine: NvidiaMachine, *without: str) -> dict[str, list[str]]:
    """Return what a process discovers whose library does not have these symbols."""
    hidden = [f"-D{name}=hidden_{name}" for name in without]
    library = compile_library("a library", ROOT / SOURCE, SONAME, definitions=[*compiler_definitions(), *hidden])
    shutil.copy2(library, (machine.library_folder / SONAME).resolve())
    environment = {key: value for key, value in os.environ.items() if key != MACHINE_VARIABLE}
    command = [sys.executable, "-m", "tests.kubeletplugin.backends.nvidia.discovery_process", str(machine.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    printed: dict[str, list[str]] = json.loads(done.stdout)
    return printed


def test_a_library_without_symbols_is_used_for_what_it_has(tmp_path: Path) -> None:
    """Those of the health, of memory and of the processes came after others."""
    machine = NvidiaMachineUnderTest(tmp_path).hardware
    found = discover_with(machine, "nvmlDeviceGetRemappedRows", "nvmlDeviceGetMemoryInfo", "nvmlEventSetCreate")
    assert len(found["cards"]) == 2
    assert [line for line in found["logged"] if "nvmlEventSetCreate" in line] == [
        "no events are watched now: nvmlEventSetCreate: Function Not Found"
    ]


# What contradicts itself. The library answers as the stand-in does, but for one function.


class ContradictoryLibrary(NvmlLibrary):
    """NVML, one function of which does something else with its arguments and its answer."""

    def __init__(self, driver_root: Path, function: str, change: Callable[..., Any]) -> None:
        super().__init__(driver_root)
        self._function, self._change = function, change

    def _call(self, name: str, *arguments: Any) -> Any:
        answer = super()._call(name, *arguments)
        return self._change(answer, *arguments) if name == self._function else answer


def backend_with(machine: NvidiaMachineUnderTest, function: str, change: Callable[..., Any]) -> NvidiaBackend:
    machine.choose()
    root = machine.hardware.driver_root
    config = NvidiaConfig(driver_root=str(root), system_root=str(machine.hardware.folder))
    backend = NvidiaBackend(config, library=ContradictoryLibrary(root, function, change))
    backend.open()
    return backend


def set_count(count: int) -> Callable[..., Any]:
    """Return what sets the count that a function gives back by its last argument."""

    def change(answer: Any, *arguments: Any) -> Any:
        arguments[-1]._obj.value = count
        return answer

    return change


def count_more(answer: int) -> int:
    return answer + 1


def give_first(answer: Any, index: int) -> Any:
    return answer if index == 0 else pynvml.nvmlDeviceGetHandleByIndex(0)


def count_beyond_belief(answer: int) -> int:
    return 2**31


@pytest.mark.parametrize(
    ("function", "change", "cards", "named"),
    [
        ("nvmlDeviceGetCount", count_more, 2, "GPU 2 does not answer: nvmlDeviceGetHandleByIndex: Invalid Argument"),
        ("nvmlDeviceGetHandleByIndex", give_first, 1, "GPU 1 is left out: NVML lists GPU-"),
    ],
)
def test_a_library_that_counts_or_lists_cards_wrongly_has_those_that_are_there(
    function: str,
    change: Callable[..., Any],
    cards: int,
    named: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = backend_with(NvidiaMachineUnderTest(tmp_path), function, change)
    assert len(discover_often(backend)) == cards
    (line,) = messages(caplog)
    assert line.startswith(named)
    with pytest.raises(HardwareBusyError, match="may be one that cannot be read"):
        backend.survey("GPU-that-is-not-listed")


def test_a_count_of_cards_that_no_machine_has_is_refused(tmp_path: Path) -> None:
    backend = backend_with(NvidiaMachineUnderTest(tmp_path), "nvmlDeviceGetCount", count_beyond_belief)
    with pytest.raises(HardwareRefusedError, match="NVML counts 2147483648 GPUs"):
        backend.discover()


@pytest.mark.parametrize("count", [19, 2**32 - 1])
def test_placements_that_were_not_counted_leave_their_cards_out(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second call, with rows, says that it has filled more than were asked for."""
    machine = NvidiaMachineUnderTest(tmp_path)

    def change(answer: Any, *arguments: Any) -> Any:
        if arguments[2] is not None or count > 2**31:
            arguments[-1]._obj.value = count
        return answer

    backend = backend_with(machine, "nvmlDeviceGetGpuInstancePossiblePlacements", change)
    assert not discover_often(backend)
    lines = messages(caplog)
    assert len(lines) == 2
    assert all("cannot be described: nvmlDeviceGetGpuInstancePossiblePlacements: NVML" in line for line in lines)


def test_instances_that_do_not_fit_into_the_rows_are_not_taken_for_absent(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    plugin = PluginStandIn(machine, GPU)
    machine.cut_by_hand(machine.partitions(plugin.cards[0])[0])
    for function in ("nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetComputeInstances"):
        backend = backend_with(machine, function, set_count(65))
        first, second = backend.discover()
        with pytest.raises(HardwareBusyError, match=f"{function}: NVML lists 65 where it had 64 rows"):
            backend.survey(first.uuid)
        assert backend.survey(second.uuid).partitions == ()
        backend.close()


def test_a_card_without_a_name_is_offered_and_named_by_its_uuid_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].name = b""
    backend = machine.open_backend()
    backend.open()
    first, second = discover_often(backend)
    assert (first.geometry.model, first.attributes["productName"].value) == (second.geometry.model, "")
    assert messages(caplog) == [f"card {first.uuid} reports no product name: its productName is empty"]


def test_a_card_without_a_uuid_is_left_out_and_named_by_its_number_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].uuid = b""
    backend = machine.open_backend()
    backend.open()
    (card,) = discover_often(backend)
    assert card.index == 1
    assert messages(caplog) == ["GPU 0 does not answer: nvmlDeviceGetUUID: the answer is empty"]


def test_two_cards_of_one_number_keep_no_other_from_being_offered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their devices have the same names: no card of the node was published."""
    machine = NvidiaMachineUnderTest(tmp_path, *3 * [CardDescription(model=H100)])
    with machine.hardware._state() as state:
        state.cards[1].minor = 0
    backend = machine.open_backend()
    backend.open()
    first, third = discover_often(backend)
    assert (first.index, third.index) == (0, 2)
    (line,) = messages(caplog)
    assert line.endswith(f"cannot be described: its number 0 is that of card {first.uuid}")


def test_a_mode_that_kerf_does_not_know_is_an_error_of_its_card(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].compute_mode = 9
    machine.choose()
    library = NvmlLibrary(machine.hardware.driver_root)
    library.open()
    first, second = library.list_cards()
    with pytest.raises(HardwareRefusedError, match="nvmlDeviceGetComputeMode: 9 is no mode"):
        library.read_compute_mode(first.uuid)
    assert library.read_compute_mode(second.uuid) is ComputeMode.DEFAULT
    library.close()


class OverflowingBindings:
    """The bindings, whose list of processes has more rows than they have made room for."""

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlDeviceGetComputeRunningProcesses_v3":
            return self._list_processes
        return getattr(pynvml, name)

    def _list_processes(self, handle: Any) -> list[Any]:
        room = (pynvml.c_nvmlProcessInfo_v3_t * 5)()
        return [room[number] for number in range(6)]


class OverflowingLibrary(NvmlLibrary):
    """NVML that lists more processes than it counts."""

    def _bindings(self) -> Any:
        super()._bindings()
        return OverflowingBindings()


def test_processes_that_were_not_counted_are_an_error_of_the_call(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.choose()
    library = OverflowingLibrary(machine.hardware.driver_root)
    library.open()
    card = library.list_cards()[0]
    with pytest.raises(HardwareBusyError, match="nvmlDeviceGetComputeRunningProcesses_v3: NVML lists more than"):
        library.list_processes(card.uuid)
    library.close()


def test_a_problem_that_comes_back_is_named_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    backend = machine.open_backend()
    backend.open()
    for is_lost in (True, True, False, True):
        machine.hardware.drop_card(0) if is_lost else machine.hardware.restore_card(0)
        backend.discover()
    assert messages(caplog) == 2 * ["GPU 0 does not answer: nvmlDeviceGetHandleByIndex: GPU is lost"]


def test_a_profile_without_a_name_has_the_tables(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].profiles[0].name = b""
    backend = machine.open_backend()
    backend.open()
    first, second = backend.discover()
    assert {spec.profile for spec in first.geometry.specs} == {spec.profile for spec in second.geometry.specs}


@pytest.mark.parametrize("name", [b"\xff\xfe", b"1g.20gb\xff", b"a b", b"1g\n20gb"])
def test_a_profile_whose_name_is_no_name_has_the_tables_and_that_is_said(
    name: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The structures of the bindings raise an error for what is no UTF-8: discovery ended, and all cards were gone."""
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].profiles[2].name = name
    backend = machine.open_backend()
    backend.open()
    first, second = discover_often(backend)
    assert {spec.profile for spec in first.geometry.specs} == {spec.profile for spec in second.geometry.specs}
    (line,) = messages(caplog)
    assert "which is taken for 1g.20gb" in line
    assert line.isprintable()


@pytest.mark.parametrize(
    ("start", "size", "named"),
    [
        (2**31 - 1, 2, "2 memory slices at 2147483647"),
        (0, 2**32 - 1, "4294967295 memory slices at 0"),
        (24, 2, "2 memory slices at 24"),
        (0, 0, "0 memory slices at 0"),
    ],
)
@pytest.mark.parametrize("product", [b"NVIDIA H100 80GB HBM3", b"NVIDIA X1"], ids=["known", "unknown"])
def test_a_placement_that_no_card_has_leaves_its_card_out_at_once(
    product: bytes, start: int, size: int, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A set of so many memory slices took seconds and a quarter of a gigabyte, and a card of an unknown model with more
    than its counters can hold kept all others out of the pool.
    """
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].name = product
        assign(state.cards[0].profiles[2].placements[0], start=start, size=size)
    backend = machine.open_backend()
    backend.open()
    (card,) = discover_often(backend)
    assert card.index == 1
    (line,) = messages(caplog)
    assert line.endswith(f"nvmlDeviceGetGpuInstancePossiblePlacements: NVML places profile 15 on {named}")


@pytest.mark.parametrize("units", [9, 12, 25])
def test_a_card_of_an_unknown_model_with_as_many_memory_slices_as_can_be_is_published_beside_others(
    units: int, tmp_path: Path
) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        assign(state.cards[0], name=b"NVIDIA X1", pci_device_id=0x123410DE)
        assign(state.cards[0].profiles[2].placements[0], start=units - 2)
        for row in state.cards[0].profiles:
            assign(row.engines, copy=1, decoders=1, encoders=1, jpeg=1, ofa=1)
    backend = machine.open_backend()
    backend.open()
    cards = discover_often(backend)
    assert cards[0].geometry.units == units
    for layout in SliceLayout:
        compiled = compile_pool("node-1", "node-1", cards, vocabulary=GPU.vocabulary, layout=layout)
        assert {partition.card_uuid for partition in compiled.partitions.values()} == {card.uuid for card in cards}
        first, _ = (one for slice_ in compiled.pool.slices for one in slice_.shared_counters)
        assert len(first.counters) == units + 7  # memory, multiprocessors and five kinds of engines
        published = [device for slice_ in compiled.pool.slices for device in slice_.devices]
        parts = [device for device in published if compiled.partitions[device.name].card_uuid == cards[0].uuid]
        assert {device.attributes["lossRank"].value for device in parts} == {0}  # losses of so many units took minutes


def test_a_driver_whose_version_is_no_text_is_refused_by_name_and_nvml_is_closed(tmp_path: Path) -> None:
    """Otherwise the opening would stay behind: NVML counts how often it is opened."""
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.driver_version = state.kernel_version = b"\xff"
    with pytest.raises(NvmlFailedError, match=r"^nvmlSystemGetDriverVersion: the answer is not text: "):
        machine.open_backend().open()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlShutdown()
