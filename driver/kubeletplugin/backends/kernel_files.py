"""What the kernel says of any PCI card in ``/sys`` and of processes in ``/proc``, for backends of real hardware.

A file or a folder is *absent* when a folder above it was listed and does not have it. Any other error of a read proves
nothing: the folder may be that of a file system that is not mounted, or the read itself has failed.
"""

import errno
import logging
import os
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_PCIE_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_MOST_NAMED: Final = 4
"""Processes that one message names."""
_MAX_READ: Final = 4096
"""An attribute is at most a page (Linux ``Documentation/filesystems/sysfs.rst``)."""
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The PID namespace of the machine (Linux ``include/linux/proc_ns.h``: PROC_PID_INIT_INO)."""
_ENDED: Final = frozenset("ZX")
"""States of processes that hold nothing any more (proc(5)): a zombie, and a dead one."""
_DEVICE_GONE: Final = frozenset({errno.ENODEV, errno.ENXIO})
"""What reads of an attribute return whose device is being removed."""


class UnreadableFilesError(HardwareBusyError):
    """A file or a folder of the kernel cannot be read, so it is not known what is there."""


def list_folder(root: Path, folder: Path) -> list[str]:
    """Return the names in a folder of ``/sys`` below ``root``, sorted; none: the folder is absent.

    Raises UnreadableFilesError.
    """
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  (pathlib's iteration is twice as slow, and glob hides errors)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise _unreadable(folder, error) from error
        check_absent(root, folder)
        return []


def read_attribute(root: Path, path: Path) -> str | None:
    """Return an attribute in ``/sys`` below ``root``, without spaces at its ends; None: it is absent.

    Raises CardAbsentError when its device is being removed, and UnreadableFilesError.
    """
    try:
        return _read(path)
    except OSError as error:
        if error.errno in _DEVICE_GONE:
            raise CardAbsentError(f"the device of {path} is not there any more: {error.strerror}") from error
        if error.errno not in _NOT_THERE:
            raise _unreadable(path, error) from error
    check_absent(root, path)
    return None


def read_count(root: Path, path: Path) -> int:
    """Return an attribute that is a number, decimal or with 0x; 0: it is absent. Raises as ``read_attribute``."""
    text = read_attribute(root, path)
    try:
        return int(text or "0", 0)
    except ValueError as error:
        raise UnreadableFilesError(f"{path} has no number: {text!r:.80}") from error


def check_absent(root: Path, path: Path) -> None:
    """Check that a path in ``/sys`` below ``root``, which could not be read, is absent. Raises UnreadableFilesError.

    The nearest folder above it that is there proves it; but when ``sys`` is empty or missing nothing is mounted there.
    """
    roots = {root, root.resolve()}
    for child, parent in zip((path, *path.parents), path.parents, strict=False):
        if parent in roots:
            break
        try:
            names = os.listdir(parent)  # noqa: PTH208  (as above)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise _unreadable(parent, error) from error
            continue
        if not names and parent.parent in roots:
            break
        if child.name in names and _leads_somewhere(child):
            raise UnreadableFilesError(f"{child} changes while it is read")
        return
    raise UnreadableFilesError(f"{root / 'sys'} has nothing in it: is sysfs mounted there?")


def _leads_somewhere(path: Path) -> bool:
    """Whether a path that its folder lists can be followed: a link may be left whose device is gone."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return True


def _unreadable(path: Path, error: OSError) -> UnreadableFilesError:
    return UnreadableFilesError(f"{path} cannot be read: {error.strerror}; see the kernel's log")


def read_optional(path: Path) -> str:
    """Return an attribute that nothing depends on, without spaces at its ends; empty: absent, or unreadable now."""
    try:
        return _read(path)
    except OSError:
        return ""


def _read(path: Path) -> str:
    """Read an attribute, which ends before its first null byte: recorded trees are padded with them to a page."""
    with path.open("rb", buffering=0) as stream:
        content, _, _ = (stream.read(_MAX_READ) or b"").partition(b"\0")
    return content.decode(errors="replace").strip()


def parse_number(text: str, default: int = 0) -> int:
    """Return a number, decimal or with 0x; ``default``: there is none."""
    try:
        return int(text, 0)
    except ValueError:
        return default


def read_number(path: Path) -> int:
    """Return an attribute that nothing depends on, decimal or with 0x; 0: absent, or unreadable now."""
    return parse_number(read_optional(path))


def read_driver_version(root: Path, driver: str) -> str:
    """Return a driver's version: its own where it was built apart, else that of the kernel; empty: unknown."""
    own, _, _ = read_optional(root / "sys/module" / driver / "version").partition(",")  # some have a commit behind it
    return own or read_optional(root / "proc/sys/kernel/osrelease")


def read_numa_node(device: Path) -> int:
    """Return the NUMA node of a device, by its folder; 0: the machine has one node, or does not say."""
    try:
        return max(0, int((device / "numa_node").read_text()))
    except (OSError, ValueError):
        return 0


def find_pcie_root(device: Path) -> str:
    """Return the PCIe root complex that a device is behind, such as ``pci0000:00``; empty: unknown."""
    return next((part for part in device.resolve().parts if _PCIE_ROOT.fullmatch(part)), "")


def find_openers(proc: Path, nodes: AbstractSet[str]) -> dict[str, list[int]]:
    """Return the ids of the processes that have device nodes open, by the node's path, as far as they can be seen.

    ``proc`` is the folder of processes; containers have the nodes at the same paths. Processes of other PID namespaces
    are not seen: then only an attempt to open a node shows it. Raises UnreadableFilesError when no process can be
    listed.
    """
    found: dict[str, list[int]] = {}
    try:
        pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    except OSError as error:
        raise _unreadable(proc, error) from error
    for pid in pids:
        for node in nodes & _list_open(f"{proc}/{pid}/fd"):
            found.setdefault(node, []).append(pid)
    return found


def is_first_namespace(proc: Path) -> bool:
    """Whether ``proc``, the folder of processes, shows those of the whole machine: that of the first PID namespace."""
    with suppress(OSError):
        return os.readlink(proc / "self/ns/pid") == FIRST_PID_NAMESPACE  # noqa: PTH115
    return False


def find_pod_processes(proc: Path, pod_uid: str) -> dict[int, str]:
    """Return the processes of a pod that have not ended, by id, with their names, as far as they can be seen.

    The kubelet puts a pod into a control group that is named by its UID, with dashes or, below systemd, underscores.
    A zombie has ended: it holds no device. Raises UnreadableFilesError when no process can be listed.
    """
    names = (f"pod{pod_uid}", f"pod{pod_uid.replace('-', '_')}")
    found: dict[int, str] = {}
    try:
        pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    except OSError as error:
        raise _unreadable(proc, error) from error
    for pid in sorted(pids):
        with suppress(OSError):  # it ends meanwhile
            group = (proc / str(pid) / "cgroup").read_text(errors="replace")
            if any(name in group for name in names) and _read_state(proc / str(pid)) not in _ENDED:
                found[pid] = read_process_name(proc, pid)
    return found


def read_process_name(proc: Path, pid: int) -> str:
    """Return the name of a process in one line; empty: it is gone, or cannot be seen. A process names itself as it
    likes (``PR_SET_NAME``).
    """
    with suppress(OSError):
        return to_one_line((proc / str(pid) / "comm").read_text(errors="replace"))
    return ""


def is_uninterruptible(proc: Path, thread_id: int) -> bool:
    """Whether a thread of this process waits in the kernel where not even SIGKILL ends it (proc(5), state D)."""
    with suppress(OSError):
        return _read_state(proc / "self" / "task" / str(thread_id)) == "D"
    return False


def _read_state(folder: Path) -> str:
    """Return the state of a process or thread, by its folder, as one letter (proc(5)). Raises OSError."""
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].strip()[:1]


def describe_processes(names: Mapping[int, str]) -> str:
    """Return the first processes by id, with their names where known, as in "process 4711 (python3)"."""
    described = [f"{pid} ({name})" if name else f"{pid}" for pid, name in sorted(names.items())]
    return f"process{'es' if len(described) > 1 else ''} {list_names(described, _MOST_NAMED)}"


def _list_open(folder: str) -> set[str]:
    """Return the paths that a process has open, by its folder of descriptors.

    A busy node has 100,000 descriptors, and every survey looks at all: so there are strings here, and no Path.
    """
    found: set[str] = set()
    with suppress(OSError):  # it ends meanwhile, or is another user's
        for number in os.listdir(folder):  # noqa: PTH208  (as said)
            with suppress(OSError):
                found.add(os.readlink(f"{folder}/{number}"))  # noqa: PTH115
    return found


class FoundCard(Protocol):
    """What the files of a card say of it."""

    @property
    def uuid(self) -> str: ...

    @property
    def pci_address(self) -> str: ...

    @property
    def pcie_root(self) -> str: ...

    @property
    def numa_node(self) -> int: ...

    @property
    def number(self) -> int:
        """The number of its device node."""
        ...


ReadingT = TypeVar("ReadingT", bound=FoundCard)


class CardSource(Protocol[ReadingT]):
    """The files of all cards of one driver, below a root."""

    root: Path

    def list_cards(self, problems: list[KerfError], /) -> list[ReadingT]:
        """Return the cards that are there; why others cannot be read goes to ``problems``.

        Raises UnreadableFilesError when it is not known which are there.
        """
        ...

    def read_again(self, card: ReadingT, /) -> ReadingT | None:
        """Return the card as it is now, where it was; None: it is not there any more, or elsewhere.

        Raises UnreadableFilesError.
        """
        ...


class KnownCards(Generic[ReadingT]):
    """The cards of a driver that are there or were since this process began."""

    def __init__(self, files: CardSource[ReadingT]) -> None:
        self._files = files
        self._seen: dict[str, ReadingT] = {}
        self._problems = ProblemLog(_log)

    @property
    def problems(self) -> Collection[str]:
        """Why cards could not be read when they were listed last."""
        return self._problems.messages

    def list_present(self) -> list[ReadingT]:
        """Return the cards that can be read; others are logged. Raises UnreadableFilesError."""
        problems: list[KerfError] = []
        found = self._files.list_cards(problems)
        self._problems.replace([f"a card cannot be read: {problem}" for problem in problems])
        self._seen |= {reading.uuid: reading for reading in found}
        return found

    def list_seen(self) -> list[str]:
        """Return the UUIDs of all cards that are there or were."""
        self.list_present()
        return sorted(self._seen)

    def find(self, card_uuid: str) -> ReadingT:
        """Return a card as it is now, wherever it is.

        Raises CardAbsentError, and UnreadableFilesError when it may be one that cannot be read.
        """
        known = self._seen.get(card_uuid)
        if known is not None and (reading := self._files.read_again(known)) is not None:
            return reading
        problems: list[KerfError] = []
        for reading in self._files.list_cards(problems):
            if reading.uuid == card_uuid:
                return reading
        if problems:
            raise problems[0]
        where = f" at {known.pci_address}" if known is not None else ""
        raise CardAbsentError(f"there is no card {card_uuid}{where} on this node, or its driver is not loaded")


class CardNumbers:
    """The numbers of cards in the names of their devices. A driver that is bound again may give a card's node another
    number; the names of devices stay.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def find(self, card_uuid: str, number: int) -> int:
        """Return the card's number: ``number``, that of its node, when it was first asked for, or the next free one."""
        if card_uuid not in self._numbers:
            taken = set(self._numbers.values())
            while number in taken:
                number += 1
            self._numbers[card_uuid] = number
        return self._numbers[card_uuid]
