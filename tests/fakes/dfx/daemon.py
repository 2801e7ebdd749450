"""A stand-in for AMD's daemon dfx-mgrd, by its published rules (Xilinx/dfx-mgr, ``README.md`` and ``src``).

It answers one request after another on a socket of packets; loads a package into the first free slot for which there is
a directory, checks the image, makes its devices, and keeps what is loaded in a file, so that nothing is forgotten when
its clients are killed. It keeps no mark of who has loaded what. ``stop`` stands for a daemon that cannot be reached;
``forget`` for one that was started anew.

What it follows of the source, in what concerns base designs:

- ``load_accelerator_core`` (``src/daemon_helper.c``): a package of another base design is refused (-1) while a slot of
  the active one is in use; while none is, that is removed, a failure being ignored, and the package's own is loaded
  first. A flat base design is refused (-3) while a slot is in use, and loaded without removal of an idle base design.
- ``unload_accel_base``: the text ``base`` removes the active base design; -1 where there is none, where it is flat, and
  where a slot of it is in use. ``unload_accelerator``: a flat one goes with its handle.
- ``listAccelerators``: the table shows a base design only by the packages in its slots.
- ``dfx_init``: a daemon that starts knows nothing of what is loaded.
- libdfx, ``dfx_cfg_load`` and ``dfx_cfg_remove``: a load makes the overlay ``DIRECTORY_image_NUMBER``, a removal
  removes it, and a failure of that is not reported.
- Linux, ``of_fpga_region_parse_ov``: no second overlay is applied to the region of the whole FPGA.

``python -m tests.fakes.dfx.daemon FOLDER SOCKET`` runs it as a process.

A line ``CALL EFFECT [ARGUMENT]`` in the file ``faults`` has the next call of that kind fail: ``load fail STATE``,
``load kill`` (the client is killed in the middle, the load goes on), ``load hang`` (no answer before the client has
gone), ``load lose-devices``, ``load elsewhere``, ``load text TEXT`` (an answer of these words), ``unload fail``,
``remove fail`` (of a base design), ``remove keep`` (its overlay stays, and the answer is 0); or take its time:
``load delay MS``.
"""

import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.kubeletplugin.backends.slots import messages

_MOST_PACKAGES: Final = 10
"""Packages of a base design (RP_SLOTS_MAX)."""
_MOST_HANDLES: Final = 30
_SLOT: Final = re.compile(r"_slot([0-9]+)")
_HEADER: Final = "ID accelType userLoad userLoad Base UUID Parent Pid #slots slot load Accelerator\n"
_FLAT: Final = ("PL_FLAT", "XRT_FLAT")
_OLD_HEADER: Final = "# Accel_type user_load_type user_load_region Base Pid Base_type #slots slot->handle Accelerator\n"


class DaemonStandIn:
    """The daemon of the machine in ``folder``, on a socket; ``start`` runs it in a thread."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.path = path
        self.has_old_table = False
        self._state_file = folder / "state.json"
        self._shells: dict[str, dict[str, Any]] = {}
        self._wake: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, and answer in a thread of its own."""
        end, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, args=(self._listen(), end), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None and self._wake is not None:
            self._wake.close()
            self._thread.join()
            self._thread = None

    def run(self) -> None:
        """Listen, say so, and answer for ever."""
        listener = self._listen()
        print("ready", flush=True)
        end, _wake = socket.socketpair()
        self._serve(listener, end)

    # What is loaded

    def read_state(self) -> dict[str, Any]:
        """What is loaded: ``base``, ``slots`` with package and handle, ``fabric`` (what a slot got last), ``files``."""
        if not self._state_file.exists():
            return {"base": "", "slots": {}, "fabric": {}, "files": {}}
        state: dict[str, Any] = json.loads(self._state_file.read_text())
        return state

    def forget(self) -> None:
        """Know nothing any more of what is loaded, as a daemon that was started anew."""
        self._write({**self.read_state(), "base": "", "slots": {}, "files": {}}, "started")

    def know_base(self, base: str) -> None:
        """Take a base design for loaded, as it comes about where libdfx does not notice that its overlay was there."""
        self._write({**self.read_state(), "base": base})

    def overlays(self) -> list[str]:
        """The names of what overlays are applied of."""
        return sorted(one.name.rpartition("_image_")[0] for one in (self.folder / "overlays").iterdir())

    def load(self, package: str, at_half: Callable[[], None] = lambda: None) -> str:
        """Load a package and return the answer."""
        effect, argument = self._take_fault("load")
        if effect == "text":
            return argument
        if effect == "fail":
            return f"{messages.LOAD_FAILED}{f':{argument}' if argument else ''}"
        if effect == "delay":
            time.sleep(int(argument) / 1000)
        state = self.read_state()
        base = next((one for one, packages in self._list_bases() if package in packages), "")
        if fault := self._activate_base(state, base):
            return f"{fault}"
        for slot in range(self._count_slots(base)):
            place = self._find_place(base, package, slot)
            if str(slot) in state["slots"] or not place.is_dir():
                continue
            if not self._fits(place, base, slot):
                self._write(state, f"fail {package} {slot}")
                return f"{messages.LOAD_FAILED}:write error"
            at_half()
            if effect == "elsewhere":
                slot = (slot + 1) % self._count_slots(base)
            handle = next(number for number in range(_MOST_HANDLES) if number not in self._list_handles(state))
            if not self._is_flat(base):
                self._apply_overlay(place.name)
            state["slots"][str(slot)] = [package, handle]
            state["fabric"][str(slot)] = package
            if effect != "lose-devices":
                self._make_devices(place)
            self._write(state, f"load {package} {slot}")
            return f"{handle}:operating"
        return f"{messages.NO_SLOT}"

    def unload(self, handle: int) -> str:
        """Unload what has a handle, and return the answer."""
        if self._take_fault("unload")[0] == "fail":
            return "-1"
        state = self.read_state()
        for slot, (package, known) in [*state["slots"].items()]:
            if known == handle:
                del state["slots"][slot]
                place = self._find_place(state["base"], package, int(slot))
                self._remove_devices(place)
                self._remove_overlay(place.name)
                if self._is_flat(state["base"]):
                    state["base"] = ""
                self._write(state, f"unload {package} {slot}")
                return "0"
        if state["files"].pop(str(handle), None) is None:
            return "-1"
        self._write(state, f"unload {handle}")
        return "0"

    def unload_base(self) -> str:
        """Remove the base design, and return the answer."""
        effect, _ = self._take_fault("remove")
        state = self.read_state()
        base = state["base"]
        if not base or state["slots"] or self._is_flat(base) or effect == "fail":
            return "-1"
        if effect == "keep":
            state["base"] = ""
        else:
            self._remove_base(state)
        self._write(state, f"remove {base}")
        return "0"

    def load_file(self, name: str) -> None:
        """Load a bit stream of somebody, as by ``dfx-mgr-client -b``."""
        state = self.read_state()
        state["files"][str(_MOST_HANDLES - 1)] = name
        self._write(state, f"file {name}")

    def read_table(self) -> str:
        """The table of packages, as ``dfx-mgr-client -listPackage -all`` prints it."""
        state = self.read_state()
        lines = ["boot.pdi PL UUID: N/A\n\n", _HEADER] if not self.has_old_table else [_OLD_HEADER]
        number = 0
        for base, packages in self._list_bases():
            shown = messages.show_base(base.rpartition("/")[2])
            slots = 0 if self._is_flat(base) else self._count_slots(base)
            for package in packages:
                number += 1
                here = [
                    (int(slot), handle)
                    for slot, (name, handle) in sorted(state["slots"].items())
                    if state["base"] == base and name == package
                ]
                if self.has_old_table:
                    pairs = "".join(f"{slot}->{handle}," for slot, handle in here) or "-1"
                    lines.append(
                        f"{number:2d} {'XRT_PL_DFX':<12}{'-':<15}{'-':<17}{shown:<12}{'no_id':<6}{'PL_DFX':<10}"
                        f"{f'(0+{slots}+0)':<19}{pairs:<13}{package}\n"
                    )
                    continue
                places = ",".join(str(slot) for slot, _ in here) or "-1"
                handles = ",".join(str(handle) for _, handle in here) or "-1"
                lines.append(
                    f"{number:2d} {'XRT_PL_DFX':<12}{'-':<10}{'-':<10}{shown:<12}{'N/A':<10}{'N/A':<10}{'id_err':<6}"
                    f"{f'(0+{slots}+0)':<13}{places:<9}{handles:<7}{package}\n"
                )
        for handle, name in state["files"].items():
            number += 1
            if self.has_old_table:
                lines.append(f"{number:2d} - Partial full - - - - full->{handle} {name}\n")
            else:
                lines.append(f"{number:2d} - Partial full - N/A N/A - - - {handle} {name}\n")
        return "".join(lines)

    # Parts of the above

    def _list_bases(self) -> list[tuple[str, list[str]]]:
        """Base designs, by path, and the names of their packages: a flat one is its own."""
        root = self.folder / "firmware"
        bases: list[str] = []
        packages: dict[str, set[str]] = {}
        for folder, _, files in os.walk(root):  # at every question: pathlib takes twice the time
            if "shell.json" in files:
                bases.append(folder)
            if "accel.json" in files:
                base, package, slot = folder.rsplit("/", 2)
                if "_slot" in slot:
                    packages.setdefault(base, set()).add(package)
        found = []
        for folder in sorted(bases):
            base = os.path.relpath(folder, root)
            own = sorted(packages.get(folder, ()))[:_MOST_PACKAGES]
            found.append((base, [base.rpartition("/")[2]] if self._is_flat(base) else own))
        return found

    def _read_shell(self, base: str) -> dict[str, Any]:
        """Read what describes a base design, once: no test changes it and then asks the same daemon for its kind."""
        if base not in self._shells:
            self._shells[base] = json.loads((self.folder / "firmware" / base / "shell.json").read_text())
        return self._shells[base]

    def _is_flat(self, base: str) -> bool:
        return self._read_shell(base).get("shell_type") in _FLAT

    def _count_slots(self, base: str) -> int:
        return 1 if self._is_flat(base) else int(self._read_shell(base)["num_pl_slots"])

    def _find_place(self, base: str, package: str, slot: int) -> Path:
        folder = self.folder / "firmware" / base
        return folder if self._is_flat(base) else folder / package / f"{package}_slot{slot}"

    def _activate_base(self, state: dict[str, Any], base: str) -> int:
        """Have a base design loaded for one of its packages; not 0: the result of the load that fails."""
        if not base:
            return messages.NO_PACKAGE
        is_flat = self._is_flat(base)
        if state["slots"] and (is_flat or state["base"] != base):
            return messages.NO_SLOT if is_flat else messages.LOAD_FAILED
        if not is_flat and state["base"] != base:
            self._remove_base(state)
        if state["base"] == base:
            return 0
        is_loaded = self._load_base(state, base)
        self._write(state)
        return 0 if is_loaded else messages.LOAD_FAILED

    def _load_base(self, state: dict[str, Any], base: str) -> bool:
        """Load a base design, unless the kernel still has the overlay of one; whether it is loaded."""
        names = {one.rpartition("/")[2] for one, _ in self._list_bases()}
        if names & {*self.overlays()}:
            return False
        self._apply_overlay(base.rpartition("/")[2])
        state |= {"base": base, "fabric": {}}
        return True

    def _remove_base(self, state: dict[str, Any]) -> None:
        self._remove_overlay(state["base"].rpartition("/")[2])
        state["base"] = ""

    def _apply_overlay(self, name: str) -> None:
        (self.folder / "overlays" / f"{name}_image_{len(self.overlays()) + 1}").mkdir()

    def _remove_overlay(self, name: str) -> None:
        for one in (self.folder / "overlays").glob(f"{name}_image_*"):
            one.rmdir()

    @staticmethod
    def _fits(place: Path, base: str, slot: int) -> bool:
        """Whether the image was built for this place, as the configuration controller would find out."""
        built_for = (f"BITS {base} {slot}\n", f"BASE {base}\n")
        return any(one.read_text().startswith(built_for) for one in place.glob("*.bit.bin"))

    @staticmethod
    def _list_handles(state: dict[str, Any]) -> set[int]:
        return {handle for _, handle in state["slots"].values()} | {int(one) for one in state["files"]}

    def _make_devices(self, place: Path) -> None:
        for device in json.loads((place / "accel.json").read_text()).get("accel_devices", ()):
            folder = self.folder / "sys/bus/platform/devices" / device["dev_name"] / "uio"
            taken = {one.name for one in self.folder.glob("sys/bus/platform/devices/*/uio/uio*")}
            name = next(f"uio{number}" for number in range(4, 99) if f"uio{number}" not in taken)
            (folder / name).mkdir(parents=True)

    def _remove_devices(self, place: Path) -> None:
        for device in json.loads((place / "accel.json").read_text()).get("accel_devices", ()):
            shutil.rmtree(self.folder / "sys/bus/platform/devices" / device["dev_name"], ignore_errors=True)

    def _take_fault(self, call: str) -> tuple[str, str]:
        file = self.folder / "faults"
        lines = file.read_text().splitlines() if file.exists() else []
        for number, line in enumerate(lines):
            found, _, rest = line.partition(" ")
            if found == call:
                file.write_text("".join(f"{one}\n" for one in (*lines[:number], *lines[number + 1 :])))
                effect, _, argument = rest.partition(" ")
                return effect, argument
        return "", ""

    def _peek_fault(self, call: str) -> str:
        file = self.folder / "faults"
        lines = file.read_text().splitlines() if file.exists() else []
        return next((line.split()[1] for line in lines if line.startswith(f"{call} ")), "")

    def _write(self, state: dict[str, Any], line: str = "") -> None:
        if line:
            with (self.folder / "log").open("a") as log:
                log.write(f"{line}\n")
        new = self._state_file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self._state_file)

    # The socket

    def _listen(self) -> socket.socket:
        Path(self.path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        listener.listen(10)
        return listener

    def _serve(self, listener: socket.socket, end: socket.socket) -> None:
        """Answer one client after another, each of which has one question, until the other end of ``end`` is closed."""
        with listener, end:
            while True:
                ready, _, _ = select.select([listener, end], [], [])
                if end in ready:
                    return
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    if request := connection.recv(messages.MAX_MESSAGE):
                        connection.send(messages.pack_reply(self._answer(connection, request)))

    def _answer(self, connection: socket.socket, request: bytes) -> str:
        kind, text, flags = messages.unpack_request(request)
        if kind == messages.LIST_PACKAGE:
            assert self.has_old_table or flags == messages.SHOW_ALL
            return self.read_table()
        if kind == messages.LOAD_ACCEL:
            fault = self._peek_fault("load")
            answer = self.load(text, lambda: _kill_client(connection) if fault == "kill" else None)
            if fault == "hang":
                connection.recv(1)  # until the client goes
            return answer
        if kind == messages.UNLOAD_ACCEL:
            call = "remove" if text == messages.BASE else "unload"
            if self._peek_fault(call) == "kill":
                self._take_fault(call)
                _kill_client(connection)
            return self.unload_base() if text == messages.BASE else self.unload(int(text))
        return f"Unsupported message id {kind}"


def _kill_client(connection: socket.socket) -> None:
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    DaemonStandIn(Path(sys.argv[1]), sys.argv[2]).run()
