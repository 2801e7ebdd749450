"""A stand-in for ``nvidia-smi``: lists cards, sets persistence and compute mode and time slices, and resets cards.

It is written into the driver's root as a program (``driver_tree``), so it imports the standard library only. Its cards
are those of the library beside it. The time slices that were set last are kept in the file ``timeslices`` of the
machine's folder, one line for each card; as NVIDIA's program it takes UUIDs of cards only for them.
"""

import fcntl
import os
import sys

# Neither pathlib nor typing, and ctypes only where it is needed: to import them takes longer than all else.
_USAGE = """\
usage: nvidia-smi -L
       nvidia-smi --query-gpu=FIELD[,FIELD ...] --format=csv[,noheader][,nounits] [-i CARD[,CARD ...]]
       nvidia-smi -pm 0|1 [-i CARD[,CARD ...]]
       nvidia-smi -c 0|2|3 [-i CARD[,CARD ...]]
       nvidia-smi --gpu-reset [-i CARD[,CARD ...]]
       nvidia-smi compute-policy -i UUID --set-timeslice 0|1|2|3"""
_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
_FILE = os.path.join(_HERE, "..", "..", "..", "timeslices")  # noqa: PTH118
_LIBRARY = os.path.join(_HERE, "..", "lib64", "libnvidia-ml.so.1")  # noqa: PTH118
_MACHINE_VARIABLE = "KERF_FAKE_NVML"
"""The variable that chooses another machine than the library's own: a program of its driver is for that one only."""
_OPTIONS = {
    "-L": "list",
    "--list-gpus": "list",
    "--query-gpu": "query",
    "--format": "format",
    "-pm": "persistence",
    "--persistence-mode": "persistence",
    "-c": "compute",
    "--compute-mode": "compute",
    "-r": "reset",
    "--gpu-reset": "reset",
    "-i": "cards",
    "--id": "cards",
}
"""What the options are for."""
_SWITCHES = ("list", "reset")
"""Options without a value."""
_ACTIONS = {"list", "query", "persistence", "compute", "reset"}
_MODES = ("Disabled", "Enabled")
_MODE_NUMBERS = {"0": 0, "1": 1, "DISABLED": 0, "ENABLED": 1}
_COMPUTE_MODES = {0: "DEFAULT", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
"""NVML_COMPUTEMODE_*. The mode that was 1, EXCLUSIVE_THREAD, is no longer supported."""
_FIELDS = {
    "index": ("nvmlDeviceGetIndex", "number", 0),
    "name": ("nvmlDeviceGetName", "text", 0),
    "gpu_name": ("nvmlDeviceGetName", "text", 0),
    "uuid": ("nvmlDeviceGetUUID", "text", 0),
    "gpu_uuid": ("nvmlDeviceGetUUID", "text", 0),
    "pci.bus_id": ("nvmlDeviceGetPciInfo_v3", "address", 0),
    "gpu_bus_id": ("nvmlDeviceGetPciInfo_v3", "address", 0),
    "persistence_mode": ("nvmlDeviceGetPersistenceMode", "mode", 0),
    "mig.mode.current": ("nvmlDeviceGetMigMode", "mode", 0),
    "mig.mode.pending": ("nvmlDeviceGetMigMode", "mode", 1),
    "memory.total": ("nvmlDeviceGetMemoryInfo", "MiB", 0),
    "memory.free": ("nvmlDeviceGetMemoryInfo", "MiB", 1),
    "memory.used": ("nvmlDeviceGetMemoryInfo", "MiB", 2),
    "utilization.gpu": ("nvmlDeviceGetUtilizationRates", "%", 0),
    "utilization.memory": ("nvmlDeviceGetUtilizationRates", "%", 1),
}
"""By the name in --query-gpu: the function of NVML, what it gives back, and which of several numbers."""
_UNITS = ("MiB", "%")
_TEXT_BYTES = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE: the longest of the texts."""
_ADDRESS_BYTES = 36
"""Of nvmlPciInfo_t before ``busId``: a text of 16 bytes and five numbers."""
_WRONG_ARGUMENT, _UNSUPPORTED, _NO_LIBRARY, _REFUSED = 2, 3, 12, 255
"""Exit codes of nvidia-smi's manual; 255 was seen for a reset that was refused (NVIDIA/NVSentinel#1690)."""
_NOT_SUPPORTED, _NOT_FOUND, _GPU_IS_LOST, _BUSY = 3, 6, 15, 19
"""NVML_ERROR_*."""
_IN_USE = (
    "{count} being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application "
    "such as an X server, or a monitoring application such as another instance of nvidia-smi). Please first kill all "
    "processes using {those} and all compute applications running in the system."
)


class FailedError(Exception):
    """The program ends with this message and exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class NvmlError(Exception):
    """A function of NVML has failed with this code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Library:
    """NVML of the machine that the program belongs to. Devices are the handles of cards."""

    def __init__(self) -> None:
        """Raises FailedError when the library is not there, or does not open."""
        import ctypes

        os.environ.pop(_MACHINE_VARIABLE, None)
        self._types = ctypes
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise FailedError(f"NVIDIA-SMI couldn't find libnvidia-ml.so library: {error}", _NO_LIBRARY) from error
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        try:
            self.call("nvmlInit_v2")
        except NvmlError as error:
            raise FailedError(f"Failed to initialize NVML: {error}", error.code) from error

    def call(self, function: str, *arguments: object) -> None:
        """Call a function. Raises NvmlError."""
        if code := getattr(self._library, function)(*arguments):
            raise NvmlError(code, self._library.nvmlErrorString(code).decode())

    def find_card(self, name: str) -> object:
        """Return the card of an index, a UUID or a PCI address. Raises FailedError."""
        device = self._types.c_void_p()
        try:
            if name.isdecimal():
                self.call("nvmlDeviceGetHandleByIndex_v2", int(name), self._types.byref(device))
            else:
                by = "PciBusId_v2" if ":" in name else "UUID"
                self.call(f"nvmlDeviceGetHandleBy{by}", name.encode(), self._types.byref(device))
        except NvmlError as error:
            advice = ".  Reboot the system to recover this GPU" if error.code == _GPU_IS_LOST else ""
            text = f"Unable to determine the device handle for GPU {name}: {error}{advice}"
            raise FailedError(text, error.code) from error
        return device

    def count_cards(self) -> int:
        count = self._types.c_uint()
        self.call("nvmlDeviceGetCount_v2", self._types.byref(count))
        return count.value

    def list_mig_devices(self, card: object) -> "list[object]":
        """Return the handles of the MIG devices of a card."""
        found: list[object] = []
        while True:
            device = self._types.c_void_p()
            try:
                self.call("nvmlDeviceGetMigDeviceHandleByIndex", card, len(found), self._types.byref(device))
            except NvmlError:
                return found
            found.append(device)

    def read_text(self, function: str, device: object) -> str:
        text = self._types.create_string_buffer(_TEXT_BYTES)
        self.call(function, device, text, len(text))
        return text.value.decode()

    def read_address(self, device: object) -> str:
        """Return the PCI address of a card."""
        info = self._types.create_string_buffer(_ADDRESS_BYTES + _TEXT_BYTES)
        self.call("nvmlDeviceGetPciInfo_v3", device, info)
        return info.raw[_ADDRESS_BYTES:].partition(b"\0")[0].decode()

    def read_numbers(self, function: str, device: object, *, are_long: bool = False) -> "list[int]":
        """Return the first numbers of the structure that a function fills, or those behind its first two pointers.

        A function that takes one pointer leaves the second one alone.
        """
        type_ = self._types.c_uint64 if are_long else self._types.c_uint
        numbers = (type_ * 4)()
        self.call(function, device, numbers, self._types.byref(numbers, self._types.sizeof(type_)))
        return [*numbers]


def main(arguments: "list[str]") -> int:
    """Do what the arguments ask for, and return the exit code."""
    try:
        if arguments[:1] == ["compute-policy"]:
            set_time_slice(arguments)
        else:
            run(read_options(arguments))
    except FailedError as error:
        print(error)
        return error.code
    return 0


def read_options(arguments: "list[str]") -> "dict[str, str]":
    """Return the values of the options by what they are for. Raises FailedError for others."""
    found: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        what = _OPTIONS.get(name, "")
        if not what or (what in _SWITCHES and equals):
            raise FailedError(_USAGE, 1)
        found[what] = value if equals or what in _SWITCHES else next(rest, "")
    if len(_ACTIONS & {*found}) != 1:
        raise FailedError(_USAGE, 1)
    return found


def run(options: "dict[str, str]") -> None:
    """Do what the options ask for with the cards that they name, or all. Raises FailedError."""
    if "query" in options:
        check_query(options)
    library = Library()
    names = options["cards"].split(",") if "cards" in options else [*map(str, range(library.count_cards()))]
    if "list" in options:
        list_cards(library, names)
    elif "query" in options:
        query(library, names, options["query"].split(","), options["format"].split(","))
    elif "persistence" in options:
        set_persistence_mode(library, names, options["persistence"])
    elif "compute" in options:
        set_compute_mode(library, names, options["compute"])
    else:
        reset(library, names)


def list_cards(library: Library, names: "list[str]") -> None:
    for name in names:
        card = library.find_card(name)
        (index, *_), product = library.read_numbers("nvmlDeviceGetIndex", card), read_name(library, card)
        print(f"GPU {index}: {product} (UUID: {read_uuid(library, card)})")
        for number, device in enumerate(library.list_mig_devices(card)):
            profile = read_name(library, device).removeprefix(product).strip()
            print(f"  {profile:15} Device {number:2}: (UUID: {read_uuid(library, device)})")


def read_name(library: Library, device: object) -> str:
    return library.read_text("nvmlDeviceGetName", device)


def read_uuid(library: Library, device: object) -> str:
    return library.read_text("nvmlDeviceGetUUID", device)


def check_query(options: "dict[str, str]") -> None:
    """Raise FailedError for a field that is not there, or another format than CSV."""
    for field in options["query"].split(","):
        if field not in _FIELDS:
            raise FailedError(f'Field "{field}" is not a valid field to query.', _WRONG_ARGUMENT)
    form = options.get("format", "").split(",")
    if form[0] != "csv" or not {*form[1:]} <= {"noheader", "nounits"}:
        raise FailedError("--format= is csv, with noheader and nounits", _WRONG_ARGUMENT)


def query(library: Library, names: "list[str]", fields: "list[str]", form: "list[str]") -> None:
    units = ["" if "nounits" in form else find_unit(field) for field in fields]
    if "noheader" not in form:
        print(", ".join(f"{field} [{unit}]" if unit else field for field, unit in zip(fields, units, strict=True)))
    for name in names:
        card = library.find_card(name)
        print(", ".join(read_field(library, card, field, unit) for field, unit in zip(fields, units, strict=True)))


def find_unit(field: str) -> str:
    """Return the unit of a field; empty: it has none."""
    kind = _FIELDS[field][1]
    return kind if kind in _UNITS else ""


def read_field(library: Library, card: object, field: str, unit: str) -> str:
    function, kind, position = _FIELDS[field]
    try:
        if kind == "text":
            return library.read_text(function, card)
        if kind == "address":
            return library.read_address(card)
        number = library.read_numbers(function, card, are_long=kind == "MiB")[position]
    except NvmlError as error:
        if error.code != _NOT_SUPPORTED:
            raise FailedError(f"Unable to read {field}: {error}", error.code) from error
        return "[N/A]"
    if kind == "mode":
        return _MODES[number]
    return f"{number >> 20 if kind == 'MiB' else number} {unit}".rstrip()


def set_persistence_mode(library: Library, names: "list[str]", wanted: str) -> None:
    mode = _MODE_NUMBERS.get(wanted.upper())
    if mode is None:
        raise FailedError(f"Invalid persistence mode: {wanted}", _WRONG_ARGUMENT)
    for name in names:
        card = library.find_card(name)
        address = library.read_address(card)
        if library.read_numbers("nvmlDeviceGetPersistenceMode", card)[0] == mode:
            print(f"Persistence mode is already {_MODES[mode]} for GPU {address}.")
            continue
        library.call("nvmlDeviceSetPersistenceMode", card, mode)
        print(f"{_MODES[mode]} persistence mode for GPU {address}.")
    print("All done.")


def set_compute_mode(library: Library, names: "list[str]", wanted: str) -> None:
    mode = next((number for number, text in _COMPUTE_MODES.items() if wanted.upper() in (str(number), text)), None)
    if mode is None:
        raise FailedError(f"Invalid compute mode: {wanted}", _WRONG_ARGUMENT)
    for name in names:
        card = library.find_card(name)
        address = library.read_address(card)
        try:
            library.call("nvmlDeviceSetComputeMode", card, mode)
        except NvmlError as error:
            raise FailedError(f"Unable to set the compute mode of GPU {address}: {error}", error.code) from error
        print(f"Set compute mode to {_COMPUTE_MODES[mode]} for GPU {address}.")
    print("All done.")


def reset(library: Library, names: "list[str]") -> None:
    """Reset the cards, and say of which that was refused. Raises FailedError for them."""
    busy: list[str] = []
    for name in names:
        card = library.find_card(name)
        address = library.read_address(card)
        try:
            library.call("kerfResetCard", card)
        except NvmlError as error:
            if error.code == _NOT_SUPPORTED:
                raise FailedError(f"Resetting GPU {address} is not supported.", _UNSUPPORTED) from error
            if error.code != _BUSY:
                raise FailedError(f"GPU {address} could not be reset: {error}", error.code) from error
            busy.append(f"  GPU {address}: {error}\n")
        else:
            print(f"GPU {address} was successfully reset.")
    if busy:
        raise FailedError(describe_use(busy), _REFUSED)
    print("All done.")


def describe_use(busy: "list[str]") -> str:
    """Return what is said of cards that are in use, which have a line each."""
    is_one = len(busy) == 1
    count, those = ("1 device is", "this device") if is_one else (f"{len(busy)} devices are", "these devices")
    text = _IN_USE.format(count=f"{count} currently", those=those)
    return f"The following GPUs could not be reset:\n{''.join(busy)}\n{text}"


def set_time_slice(arguments: "list[str]") -> None:
    if len(arguments) != 5 or arguments[1] != "-i" or arguments[3] != "--set-timeslice":
        raise FailedError(_USAGE, 1)
    card, value = arguments[2], arguments[4]
    if value not in ("0", "1", "2", "3"):
        raise FailedError(f"Invalid time-slice option {value}", 1)
    if not card.startswith("GPU-"):
        raise FailedError(f"Unable to determine the device handle for GPU {card}: Not Found", _NOT_FOUND)
    with open(_FILE, "a+") as file:  # noqa: PTH123
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        slices = dict(line.split() for line in file)
        slices[card] = value
        file.truncate(0)
        file.write("".join(f"{name} {one}\n" for name, one in slices.items()))
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
