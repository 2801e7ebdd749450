"""What is tried of the driver and of the backend: each case returns in words what it has seen.

A case leaves the machine as it likes: the next one begins on a restored machine.
"""

import os
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import FME_PORT_ASSIGN, FME_PORT_RELEASE, PORT_RESET
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from tests.fakes.claims import claim
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, FFT_ID, build_bits
from tests.kernel_dfl.bench import CRC_ERROR, INCOMPATIBLE, Bench, name_error, wait_until
from tests.kubeletplugin.backends.one_call import call_plugin

_NAMES: Final = {AES_ID: "aes", FFT_ID: "fft", BLANK_ID: "blank", "ffffffff-ffff-ffff-ffff-ffffffffffff": "no id"}
_LOADS: Final = 1000
_AES: Final = claim("one", "fpga-0-aes-at-1")
_POINTS: Final = 40
"""More points than a prepare and an unprepare have together."""
_UNKNOWN: Final = 0xB6FF
"""A request that no driver of DFL has."""


def _say(*calls: Callable[[], object]) -> str:
    """Return the outcomes of calls: ok, or the name of the error."""
    said = []
    for call in calls:
        try:
            call()
            said.append("ok")
        except OSError as error:
            said.append(name_error(error))
    return ", ".join(said)


def _name(bench: Bench, port: int) -> str:
    found = bench.read_id(port)
    return _NAMES.get(found, found)


# What the kernel shows


def _list_cards(bench: Bench) -> str:
    cards = CardFiles(bench.machine.folder).list_cards([])
    return "; ".join(
        f"{card.pci_address}: {card.slots} ports, {len(card.ports)} here, interface {card.interface_uuid[:8]}"
        for card in cards
    )


def _read_base_interface(bench: Bench) -> str:
    (region,) = (path.parent for path in bench.machine.folder.glob("sys/class/fpga_region/region*/dfl-fme.0"))
    return _say(lambda: (region / "compat_id").read_text())


def _read_health(bench: Bench) -> str:
    files = CardFiles(bench.machine.folder)
    card = files.list_cards([])[0]
    condition = files.read_condition(card)
    return f"errors {dict(condition.errors)}, {len(condition.alarms)} alarms, ports {sorted(condition.ports)}"


# Device nodes


def _open(bench: Bench, *opens: tuple[int, int]) -> str:
    """Open ports, each with flags, one after the other; all are closed at the end."""
    with ExitStack() as stack:
        return _say(*(partial(_open_until, stack, bench, port, flags) for port, flags in opens))


def _open_until(stack: ExitStack, bench: Bench, port: int, flags: int) -> None:
    stack.callback(os.close, bench.open_port(port, flags))


def _open_twice(bench: Bench) -> str:
    return _open(bench, (0, 0), (0, 0))


def _open_exclusively(bench: Bench) -> str:
    return _open(bench, (0, 0), (0, os.O_EXCL))


def _open_held(bench: Bench) -> str:
    return _open(bench, (0, os.O_EXCL), (0, 0), (1, 0))


def _open_after_death(bench: Bench) -> str:
    def hold() -> None:
        bench.open_port(0, os.O_EXCL)
        os.kill(os.getpid(), signal.SIGKILL)

    _run_child(hold)
    return _open(bench, (0, os.O_EXCL))


def _unknown_requests(bench: Bench) -> str:
    return _say(lambda: bench.call_fme(_UNKNOWN, 0), lambda: bench.call_port(0, _UNKNOWN))


# Loads


def _load(bench: Bench) -> str:
    said = _say(lambda: bench.load(build_bits(AES_ID), port=1))
    return f"{said}; the ports have {_name(bench, 0)}, {_name(bench, 1)}"


def _load_wrongly(bench: Bench) -> str:
    bits = build_bits(AES_ID)
    return _say(lambda: bench.load(bits, port=7), lambda: bench.load(bits, argsz=16), lambda: bench.load(bits, flags=1))


def _load_odd(bench: Bench) -> str:
    return _say(lambda: bench.load(build_bits(AES_ID, padding=4095)[:4095]))


def _load_nothing(bench: Bench) -> str:
    return _say(lambda: bench.load(b""))


def _load_used(bench: Bench) -> str:
    bench.machine.use(0)
    said = _say(lambda: bench.load(build_bits(AES_ID)))
    bench.machine.stop_using(0)
    return f"{said}; the port has {_name(bench, 0)}"


def _read_during_load(bench: Bench) -> str:
    bench.slow_next_load()
    child = _fork(lambda: bench.load(build_bits(AES_ID)))
    with suppress(TimeoutError):
        wait_until(lambda: _name(bench, 0) != "blank", attempts=10_000)
    seen = _name(bench, 0)
    os.waitpid(child, 0)
    return f"{seen}, then {_name(bench, 0)}"


def _fail_load(error: int) -> Callable[[Bench], str]:
    def run(bench: Bench) -> str:
        bench.fail_next_load(error)
        said = _say(lambda: bench.load(build_bits(AES_ID)))
        card = CardFiles(bench.machine.folder).list_cards([])[0]
        status = CardFiles(bench.machine.folder).read_load_status(card)
        return f"{said}, {status!r}; the port says {_name(bench, 0)}"

    return run


def _load_after(fail: Callable[[Bench], None]) -> Callable[[Bench], str]:
    def run(bench: Bench) -> str:
        fail(bench)
        bits = build_bits(AES_ID)
        said = _say(lambda: bench.load(bits), lambda: bench.load(bits), lambda: bench.call_port(0, PORT_RESET))
        return f"{said}; the port says {_name(bench, 0)}"

    return run


def _read_state(bench: Bench) -> str:
    [file] = bench.machine.fme_folder(0).glob("dfl-fme-mgr.*/fpga_manager/fpga*/state")
    return file.read_text().strip()


def _read_states(bench: Bench) -> str:
    bench.slow_next_load()
    child = _fork(lambda: bench.load(build_bits(AES_ID)))
    with suppress(TimeoutError):
        wait_until(lambda: _name(bench, 0) != "blank", attempts=10_000)
    during = _read_state(bench)
    os.waitpid(child, 0)
    after = _read_state(bench)
    bench.fail_next_load(CRC_ERROR)
    _say(lambda: bench.load(build_bits(AES_ID)))
    failed = _read_state(bench)
    _say(lambda: bench.load(build_bits(AES_ID)))
    return f"{during}, {after}; {failed}, {_read_state(bench)}"


def _load_many(bench: Bench) -> str:
    wrong = 0
    outcomes: dict[str, int] = {}
    for number in range(_LOADS):
        afu_id = (AES_ID, FFT_ID, BLANK_ID)[number % 3]
        said = _say(partial(bench.load, build_bits(afu_id), port=number % 2))
        outcomes[said] = outcomes.get(said, 0) + 1
        wrong += bench.read_id(number % 2) != afu_id
    return f"{', '.join(f'{amount} {said}' for said, amount in outcomes.items())}; {wrong} ports with another id"


# Resets and errors


def _reset(bench: Bench) -> str:
    return _say(lambda: bench.call_port(0, PORT_RESET), lambda: bench.call_port(0, PORT_RESET, 1))


def _reset_late(bench: Bench) -> str:
    bench.hang_next_reset()
    said = _say(lambda: bench.call_port(0, PORT_RESET), lambda: bench.call_port(0, PORT_RESET))
    return f"{said}; the port says {_name(bench, 0)}"


def _clear_errors(bench: Bench) -> str:
    path = bench.machine.port_folder(0) / "errors/errors"
    bench.log_errors(0, 0x30)
    said = _say(lambda: bench.write(path, "0x10\n"), lambda: bench.write(path, "none\n"))
    bench.log_errors(0, 0x30)
    cleared = _say(lambda: bench.write(path, "0x30\n"))
    with suppress(TimeoutError):
        wait_until(lambda: path.read_text().strip() == "0x0")
    return f"{said}, {cleared}; {path.read_text().strip()} are left"


# Ports that are given away


def _move(bench: Bench, request: int, port: int) -> Callable[[], None]:
    return lambda: bench.call_fme(request, struct.pack("=i", port))


def _release_and_assign(bench: Bench) -> str:
    release, assign = _move(bench, FME_PORT_RELEASE, 1), _move(bench, FME_PORT_ASSIGN, 1)
    said = _say(release)
    card = CardFiles(bench.machine.folder).list_cards([])[0]
    there = [port.slot for port in card.ports]
    said = f"{said}, here: {there}; again: {_say(release)}; back: {_say(assign)}; again: {_say(assign)}"
    return f"{said}; cards that can be read: {len(CardFiles(bench.machine.folder).list_cards([]))}"


def _release_unknown(bench: Bench) -> str:
    return _say(_move(bench, FME_PORT_RELEASE, 7), _move(bench, FME_PORT_ASSIGN, 7))


def _release_used(bench: Bench) -> str:
    bench.machine.use(1)
    said = _say(_move(bench, FME_PORT_RELEASE, 1))
    bench.machine.stop_using(1)
    return said


def _load_released(bench: Bench) -> str:
    said = _say(
        _move(bench, FME_PORT_RELEASE, 1),
        lambda: bench.load(build_bits(AES_ID), port=1),
        _move(bench, FME_PORT_ASSIGN, 1),
    )
    return f"{said}; the port has {_name(bench, 1)}"


def _bind_again(bench: Bench) -> str:
    bench.load(build_bits(AES_ID), port=1)
    bench.machine.take_away(0)
    cards = CardFiles(bench.machine.folder).list_cards([])
    bench.machine.bring_back(0)
    now = CardFiles(bench.machine.folder).list_cards([])
    numbers = [(card.fme, *(port.number for port in card.ports)) for card in now]
    return f"{len(cards)} card, then {len(now)}: {numbers}; the port has {_name(bench, 1)}"


# The health that the backend reports


def _list_unhealthy(events: Sequence[object]) -> str:
    """Return the places and states of the health changes, with some words of their reasons."""
    changes = [event for event in events if isinstance(event, HealthChange)]
    places = [change.partition.placement if change.partition is not None else None for change in changes]
    return "; ".join(
        f"{'card' if place is None else f'slot {place.start}'} {change.state}: {' '.join(change.reason.split()[4:8])}"
        for place, change in zip(places, changes, strict=True)
    )


def _watch_failed_load(bench: Bench) -> str:
    """Fail a load into the second port, load the first, and bind the driver again; read the health each time."""
    backend = bench.open_backend()
    seen = [_list_unhealthy(backend.wait_for_events(0))]
    bench.fail_next_load(CRC_ERROR)
    _say(lambda: bench.load(build_bits(AES_ID), port=1))
    seen.append(_list_unhealthy(backend.wait_for_events(0)))
    _say(lambda: bench.load(build_bits(AES_ID)), lambda: bench.load(build_bits(AES_ID), port=1))
    seen.append(_list_unhealthy(backend.wait_for_events(0)))
    seen.append(_list_unhealthy(bench.open_backend().wait_for_events(0)))
    bench.machine.bind_again(0)
    seen.append(_list_unhealthy(backend.wait_for_events(0)))
    return " | ".join(one or "-" for one in seen)


def _watch_load(bench: Bench) -> str:
    """Read the health all the time while loads go on."""

    def load() -> None:
        for one in (AES_ID, FFT_ID, AES_ID):
            bench.load(build_bits(one))

    bench.slow_next_load()
    return _watch(bench, load)


def _watch(bench: Bench, work: Callable[[], None]) -> str:
    """Read the health all the time while another process works."""
    backend = bench.open_backend()
    seen = [_list_unhealthy(backend.wait_for_events(0))]
    child = _fork(work)
    reads = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.append(_list_unhealthy(backend.wait_for_events(0)))
        reads += 1
    return f"{'; '.join(filter(None, seen)) or 'healthy'}, {'some readings' if reads > 1 else 'too few'}"


def _watch_resets(bench: Bench) -> str:
    """Read the health all the time while a process resets a port."""

    def reset() -> None:
        for _ in range(_LOADS):
            bench.call_port(0, PORT_RESET)

    return _watch(bench, reset)


def _watch_given_back(bench: Bench) -> str:
    backend = bench.open_backend()
    seen = [_list_unhealthy(backend.wait_for_events(0))]
    said = _say(_move(bench, FME_PORT_RELEASE, 1), _move(bench, FME_PORT_ASSIGN, 1))
    seen.append(_list_unhealthy(backend.wait_for_events(0)))
    bench.machine.bind_again(0)
    seen.append(_list_unhealthy(backend.wait_for_events(0)))
    return f"{said}: " + " | ".join(one or "-" for one in seen)


def _end_failed_claim(bench: Bench) -> str:
    """Prepare with a load that fails, end the claim, bind the driver again, and prepare."""
    root = Path(bench.document.cache_folder).with_name("ended")
    bench.fail_next_load(CRC_ERROR)
    steps = ("prepare", "prepare", "unprepare")
    said = [_END[_run_child(partial(_call, bench, root, operation))] for operation in steps]
    said.append(_state(bench, root))
    bench.machine.bind_again(0)
    said.append(_END[_run_child(lambda: _call(bench, root, "prepare"))])
    return ", ".join((*said, _state(bench, root)))


# The backend in processes that end


def _fork(work: Callable[[], object]) -> int:
    """Have ``work`` done by a child; its exit status is 0, or 1 with one of Kerf's errors, which it prints."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except* KerfError as error:
        print(*error.exceptions, flush=True)
        os._exit(1)
    except* BaseException as error:
        print(repr(error), flush=True)
        os._exit(2)
    os._exit(0)


def _run_child(work: Callable[[], object]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1])


def _call(bench: Bench, folder: Path, operation: str, at_change: Callable[[], None] = lambda: None) -> None:
    folder.mkdir(exist_ok=True)
    backend = bench.open_backend(bench.build_calls(at_change))
    anyio.run(call_plugin, folder, _AES, operation, backend)


def _kill_at(point: int) -> Callable[[], None]:
    left = count(1)
    return lambda: os.kill(os.getpid(), signal.SIGKILL) if next(left) == point else None


def _state(bench: Bench, folder: Path) -> str:
    with open_checkpoint(folder, boot_id="boot-1") as checkpoint:
        return f"{len(checkpoint.records)} claim, {_name(bench, 1)}"


def _kill_everywhere(bench: Bench) -> str:
    """Kill a prepare at each change of the card, then finish it; then an unprepare in the same way."""
    found: list[str] = []
    folder = bench.document.cache_folder
    root = Path(folder).with_name("killed")
    for operation, wanted in (("prepare", "1 claim, aes"), ("unprepare", "0 claim, blank")):
        for point in range(1, _POINTS):
            if operation == "unprepare":
                assert _run_child(lambda: _call(bench, root, "prepare")) == 0
            status = _run_child(partial(_call, bench, root, operation, _kill_at(point)))
            after = _run_child(partial(_call, bench, root, operation))
            state = _state(bench, root)
            if operation == "prepare":
                _run_child(lambda: _call(bench, root, "unprepare"))
            if after or state != wanted:
                found.append(f"{operation} {point}: {status}, then {after}: {state}")
            if status == 0:
                found.append(f"{operation}: {point - 1} points")
                break
    return "; ".join(found)


def _kill_in_load(bench: Bench) -> str:
    root = Path(bench.document.cache_folder).with_name("killed")
    bench.slow_next_load()
    child = _fork(lambda: _call(bench, root, "prepare"))
    with suppress(TimeoutError):
        wait_until(lambda: _name(bench, 1) in ("EBUSY", "no id"), attempts=60_000)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = _name(bench, 1)
    again = _run_child(lambda: _call(bench, root, "prepare"))
    return f"killed {status}, left {left}; again {again}: {_state(bench, root)}"


def _two_plugins(bench: Bench) -> str:
    """Two plugins, each with records of its own, prepare the same slot while the load of the first goes on."""
    root = Path(bench.document.cache_folder)
    bench.slow_next_load()
    child = _fork(lambda: _call(bench, root.with_name("one"), "prepare"))
    with suppress(TimeoutError):
        wait_until(lambda: _name(bench, 1) in ("EBUSY", "no id"), attempts=60_000)
    second = _run_child(lambda: _call(bench, root.with_name("two"), "prepare"))
    first = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"first {_END[first]}, second {_END[second]}; the slot has {_name(bench, 1)}"


_END: Final = {0: "done", 1: "refused", 2: "failed"}


def _prepare_after(fail: Callable[[Bench], None]) -> Callable[[Bench], str]:
    def run(bench: Bench) -> str:
        root = Path(bench.document.cache_folder).with_name("after")
        fail(bench)
        first = _run_child(lambda: _call(bench, root, "prepare"))
        again = _run_child(lambda: _call(bench, root, "prepare"))
        return f"{_END[first]}, then {_END[again]}; the slot has {_name(bench, 1)}"

    return run


CASES: Final[Mapping[str, Callable[[Bench], str]]] = MappingProxyType(
    {
        "the cards that a survey finds": _list_cards,
        "compat_id of a card's base region": _read_base_interface,
        "health of a card": _read_health,
        "a port is opened twice": _open_twice,
        "an open port is opened with O_EXCL": _open_exclusively,
        "a port open with O_EXCL is opened, and the other port": _open_held,
        "O_EXCL after the process that had it was killed": _open_after_death,
        "unknown requests: engine, port": _unknown_requests,
        "a load": _load,
        "a load: unknown port, short argsz, flags": _load_wrongly,
        "a load of 4,095 bytes": _load_odd,
        "a load of no bytes": _load_nothing,
        "a load into a port that a process has open": _load_used,
        "afu_id during a load": _read_during_load,
        "the card reports a CRC error": _fail_load(CRC_ERROR),
        "the card reports an incompatible image": _fail_load(INCOMPATIBLE),
        "a failed load, a good one, a reset": _load_after(lambda bench: bench.fail_next_load(CRC_ERROR)),
        "a load that hangs, a good one, a reset": _load_after(lambda bench: bench.hang_next_load()),
        "the FPGA manager's state: in a load, after it; after one that failed, after another": _read_states,
        f"{_LOADS:,} loads": _load_many,
        "a reset, and one with an argument": _reset,
        "a reset that is answered late, and another one": _reset_late,
        "errors: another value, no value, the value": _clear_errors,
        "a port is released, assigned": _release_and_assign,
        "an unknown port is released, assigned": _release_unknown,
        "an open port is released": _release_used,
        "a released port is loaded": _load_released,
        "the driver is taken from a card and bound again": _bind_again,
        "Kerf: killed at each change of a card": _kill_everywhere,
        "Kerf: killed while the card loads": _kill_in_load,
        "Kerf: two plugins prepare one slot": _two_plugins,
        "Kerf: a load fails, and is tried again": _prepare_after(lambda bench: bench.fail_next_load(CRC_ERROR)),
        "Kerf: a load hangs, and is tried again": _prepare_after(lambda bench: bench.hang_next_load()),
        "Kerf: a reset is answered late": _prepare_after(lambda bench: bench.hang_next_reset()),
        "Kerf: a load fails, and the claim ends": _end_failed_claim,
        "Kerf: health after a load that failed": _watch_failed_load,
        "Kerf: health while loads go on": _watch_load,
        "Kerf: health while a port is reset": _watch_resets,
        "Kerf: health after a port was given back": _watch_given_back,
    }
)
"""By what is tried."""


def run_case(name: str, bench: Bench) -> str:
    """Return what a case has seen; an error that it does not expect is an outcome, too."""
    try:
        return CASES[name](bench)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


NAMES: Final[Sequence[str]] = tuple(CASES)
