"""The state file of the stand-in as ctypes structures: those of ``source/state.h``, whose compiler compares sizes."""

from ctypes import Array, Structure, c_char, c_double, c_int32, c_uint8, c_uint32, c_uint64, sizeof
from typing import Any, ClassVar, Final

MAX_CARDS: Final = 16
MAX_PROFILES: Final = 18
MAX_PLACEMENTS: Final = 8
MAX_GPU_INSTANCES: Final = 16
MAX_COMPUTE_INSTANCES: Final = 8
MAX_COMPUTE_PROFILES: Final = 9
MAX_PROCESSES: Final = 64
MAX_EVENTS: Final = 64
MAX_FAULTS: Final = 16
MAX_MINORS: Final = 32
GPM_METRICS: Final = 5
MAX_NVLINKS: Final = 18
NVSWITCH: Final = -1
"""``NvlinkLayout.remote`` of a link to a switch."""
UUID_SIZE: Final = 48
MAGIC: Final = 0x6B66766D
EVERY_CALL: Final = 0xFFFFFFFF
"""``FaultLayout.remaining`` of a fault that stays."""
NO_INSTANCE: Final = 0xFFFFFFFF
"""NVML's id of no instance: what concerns a whole card."""


class EnginesLayout(Structure):
    """Counts of engines."""

    _fields_: ClassVar = [(name, c_uint32) for name in ("copy", "decoders", "encoders", "jpeg", "ofa")]


class ComputeProfileLayout(Structure):
    """A compute-instance profile of a GPU-instance profile."""

    _fields_: ClassVar = [
        *((name, c_uint32) for name in ("profile_enum", "id", "slices", "multiprocessors")),
        ("name", c_char * 32),
    ]


class PlacementLayout(Structure):
    """A placement, and the id of a GPU instance there."""

    _fields_: ClassVar = [(name, c_uint32) for name in ("start", "size", "instance_id")]


class ProfileLayout(Structure):
    """A GPU-instance profile."""

    _fields_: ClassVar = [
        *((name, c_uint32) for name in ("profile_enum", "id", "slices", "max_instances", "multiprocessors")),
        ("engines", EnginesLayout),
        ("n_placements", c_uint32),
        ("n_compute_profiles", c_uint32),
        ("memory_mib", c_uint64),
        ("name", c_char * 32),
        ("placements", PlacementLayout * MAX_PLACEMENTS),
        ("order", c_uint32 * MAX_PLACEMENTS),
        ("compute_profiles", ComputeProfileLayout * MAX_COMPUTE_PROFILES),
    ]


class ComputeInstanceLayout(Structure):
    """A compute instance."""

    _fields_: ClassVar = [(name, c_uint32) for name in ("exists", "profile", "start", "size", "serial")]


class ActivityLayout(Structure):
    """How much of a card or instance is used."""

    _fields_: ClassVar = [
        ("since_us", c_uint64),
        ("percent", c_double * GPM_METRICS),
        ("used_us", c_double * GPM_METRICS),
    ]


class GpuInstanceLayout(Structure):
    """A GPU instance."""

    _fields_: ClassVar = [
        *((name, c_uint32) for name in ("exists", "profile", "placement", "serial")),
        ("compute", ComputeInstanceLayout * MAX_COMPUTE_INSTANCES),
        ("activity", ActivityLayout),
    ]


class NvlinkLayout(Structure):
    """An NVLink of a card."""

    _fields_: ClassVar = [("is_on", c_uint32), ("remote", c_int32)]


class CardLayout(Structure):
    """A card."""

    _fields_: ClassVar = [
        *(
            (name, c_uint32)
            for name in (
                *("presence", "mig_switch", "is_passthrough", "mig_current", "mig_pending"),
                *("minor", "minor_after_reset"),
                *("architecture", "cuda_major", "cuda_minor", "brand", "compute_mode"),
                *("is_persistent", "is_persistent_at_load"),
            )
        ),
        ("numa_node", c_int32),
        ("memory_node", c_int32),
        *(
            (name, c_uint32)
            for name in (
                *("pci_domain", "pci_bus", "pci_device", "pci_device_id", "pci_subsystem_id"),
                *("remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failed"),
                *("recovery_action", "clocks_event_reasons"),
                *("compute_slices", "multiprocessors"),
            )
        ),
        ("engines", EnginesLayout),
        ("exclusive", EnginesLayout),
        *((name, c_uint32) for name in ("n_profiles", "serial", "gpu_percent", "memory_percent", "resets")),
        ("n_nvlinks", c_uint32),
        ("nvlinks", NvlinkLayout * MAX_NVLINKS),
        ("memory_bytes", c_uint64),
        ("energy_mj", c_uint64),
        ("activity", ActivityLayout),
        ("uuid", c_char * UUID_SIZE),
        ("name", c_char * 96),
        ("profiles", ProfileLayout * MAX_PROFILES),
        ("instances", GpuInstanceLayout * MAX_GPU_INSTANCES),
        ("mig_uuids", c_char * UUID_SIZE * MAX_COMPUTE_INSTANCES * MAX_GPU_INSTANCES),
    ]


class ProcessLayout(Structure):
    """A process that uses a card."""

    _fields_: ClassVar = [
        *((name, c_uint32) for name in ("pid", "card", "gpu_instance", "compute_instance")),
        *((name, c_uint32) for name in ("sm_percent", "memory_percent")),
        ("memory_bytes", c_uint64),
    ]


class EventLayout(Structure):
    """An event that sets deliver."""

    _fields_: ClassVar = [
        ("serial", c_uint64),
        *((name, c_uint32) for name in ("card", "gpu_instance", "compute_instance")),
        ("type", c_uint64),
        ("data", c_uint64),
    ]


class FaultLayout(Structure):
    """A fault of a function."""

    _fields_: ClassVar = [
        ("function", c_char * 64),
        *((name, c_uint32) for name in ("action", "error", "skip", "remaining")),
        ("delay_us", c_uint64),
    ]


class TreeLayout(Structure):
    """What ``/proc`` and ``/dev`` show."""

    _fields_: ClassVar = [
        ("cards", c_uint32 * MAX_MINORS),
        ("gpu_instances", c_uint32 * MAX_MINORS),
        ("compute_instances", c_uint8 * MAX_GPU_INSTANCES * MAX_MINORS),
    ]


class StateLayout(Structure):
    """The whole file."""

    _fields_: ClassVar = [
        *(
            (name, c_uint32)
            for name in (
                *("magic", "size", "is_loaded", "loads", "is_tree_stale", "is_changing", "changing", "n_cards"),
            )
        ),
        ("cuda_version", c_int32),
        ("event_serial", c_uint64),
        ("clock_us", c_uint64),
        *((name, c_char * 32) for name in ("driver_version", "kernel_version", "nvml_version")),
        ("processes", ProcessLayout * MAX_PROCESSES),
        ("events", EventLayout * MAX_EVENTS),
        ("faults", FaultLayout * MAX_FAULTS),
        ("tree", TreeLayout),
        ("cards", CardLayout * MAX_CARDS),
        ("undo", CardLayout),
    ]


def compiler_definitions() -> list[str]:
    """Return the sizes that the C sources are compared with, as arguments of the compiler."""
    sizes = {
        "PROFILE": ProfileLayout,
        "GPU_INSTANCE": GpuInstanceLayout,
        "CARD": CardLayout,
        "STATE": StateLayout,
    }
    return [f"-DSIZEOF_{name}={sizeof(layout)}" for name, layout in sizes.items()]


def assign(structure: Structure, **values: object) -> None:
    """Set fields; texts become bytes. Raises AttributeError for a field that the structure does not have."""
    known = {field[0] for field in structure._fields_}
    for name, value in values.items():
        if name not in known:
            raise AttributeError(f"{type(structure).__name__} has no field {name}")
        setattr(structure, name, value.encode() if isinstance(value, str) else value)


def find_slot(rows: "Array[Any]", field: str) -> Any:  # noqa: ANN401  (ctypes arrays know their elements at run time only)
    """Return the first row whose ``field`` is 0 or empty. Raises OverflowError when all are used."""
    for row in rows:
        if not getattr(row, field):
            return row
    raise OverflowError(f"all {len(rows)} rows of {type(rows).__name__} are used")
