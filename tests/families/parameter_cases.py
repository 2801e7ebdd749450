"""Parameters for Kerf's drivers and a third party's, right and wrong ones: one table for the decoder, the policy in the
embedded API server, and the policy in a real one."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

import msgspec

from kerf_dra.api.kerf.scalar_types import DeviceWord
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, GpuConfig, GpuSharing, NodeLabelRequirement, Strict
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.gpu import GPU as GPU_FAMILY

GPU: Final = "gpu.kerf.dev"
FPGA: Final = "fpga.kerf.dev"
ACME: Final = "acme.example.com"


class Window(Strict):
    """An object of which a list is in a configuration."""

    start: Annotated[int, msgspec.Meta(ge=0)]
    label: DeviceWord | None = None


class Local(Strict, tag_field="type", tag="Local"):
    """One of two objects that a field may have."""

    path: Annotated[str, msgspec.Meta(max_length=16, pattern=r"^/[a-z]+$")]


class Remote(Strict, tag_field="type", tag="Remote"):
    """The other."""

    retries: Annotated[int, msgspec.Meta(le=5)] = 0


class AcmeConfig(DeviceConfigBase, tag="AcmeConfig"):
    """A third party's configuration, with all that the decoder knows."""

    size: Quantity
    source: Local | Remote | None = None
    windows: Annotated[tuple[Window, ...], msgspec.Meta(max_length=2)] = ()
    labels: Annotated[dict[DeviceWord, Quantity], msgspec.Meta(min_length=1, max_length=2)] | None = None
    modes: tuple[Literal["fast", "slow"], ...] = ()
    nodes: tuple[NodeLabelRequirement, ...] = ()
    sharing: GpuSharing | None = None


ACME_FAMILY: Final = replace(
    GPU_FAMILY,
    name="acme",
    driver=DriverName(ACME),
    configurations={"AcmeConfig": AcmeConfig, "GpuConfig": GpuConfig},
    default_configuration="GpuConfig",
)


@dataclass(frozen=True, slots=True)
class ParameterCase:
    """Parameters in a claim, and what is wrong with them."""

    name: str
    driver: str
    parameters: dict[str, Any]
    problems: tuple[str, ...] = ()
    """The beginning of each message, from the path within the parameters; none: they are valid."""


def _gpu(name: str, *problems: str, **fields: Any) -> ParameterCase:
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}
    return ParameterCase(name, GPU, document | fields, problems)


def _sharing(name: str, *problems: str, **fields: Any) -> ParameterCase:
    return _gpu(name, *problems, sharing=fields)


def _mps(name: str, *problems: str, **fields: Any) -> ParameterCase:
    return _sharing(name, *problems, strategy="Mps", mps=fields)


def _fpga(name: str, *problems: str, **fields: Any) -> ParameterCase:
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "FpgaConfig"}
    return ParameterCase(name, FPGA, document | fields, problems)


def _acme(name: str, *problems: str, **fields: Any) -> ParameterCase:
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "AcmeConfig", "size": "1Gi"}
    return ParameterCase(name, ACME, document | fields, problems)


_QUANTITY: Final = ".sharing.mps.pinnedDeviceMemoryLimit: must be a quantity above zero"
_PERCENTAGE: Final = ".sharing.mps.activeThreadPercentage: must be a whole number of at least 1 and at most 100"
_STRATEGY: Final = ".sharing.strategy: must be one of Exclusive, Mps, TimeSlicing"
_FUNCTION: Final = ".function: must be a name of a model, profile or function"
_TIMEOUT: Final = ".timeoutSeconds: must be a whole number of at least 1 and at most 3600"
_SOURCE: Final = ".source: must be an object of type Local or Remote"

CASES: Final = (
    _gpu("nothing but the kind"),
    _gpu("metadata files", deviceMetadata=True),
    _gpu("null is unset", deviceMetadata=None, sharing=None),
    _sharing("an empty object"),
    _sharing("time slices", strategy="TimeSlicing", timeSlicing={"interval": "Long"}),
    _sharing("time slices of the default length", strategy="TimeSlicing"),
    _sharing("null beside another strategy", strategy="Mps", timeSlicing=None),
    _mps("MPS without limits"),
    _mps("MPS with limits", activeThreadPercentage=100, pinnedDeviceMemoryLimit="1.5Gi"),
    _mps("a whole number of bytes", pinnedDeviceMemoryLimit=1073741824),
    _mps("a fraction", pinnedDeviceMemoryLimit=0.5),
    _mps("an exponent", pinnedDeviceMemoryLimit="1e9"),
    _mps("a sign and no whole part", pinnedDeviceMemoryLimit="+.5Ki"),
    _mps("the smallest amount", pinnedDeviceMemoryLimit="0.000000000000001n"),
    _mps("the largest exponent", pinnedDeviceMemoryLimit="1e+0400"),
    _fpga("no function"),
    _fpga("everything", function="aes-256_v1.2", release="Keep", timeoutSeconds=3600, deviceMetadata=False),
    _fpga("a name of 64 characters", function="f" * 64),
    _gpu("no version", ".apiVersion: must be kerf.dev/v1alpha1", apiVersion=None),
    _gpu("another version", ".apiVersion: must be kerf.dev/v1alpha1", apiVersion="kerf.dev/v2"),
    _gpu("no kind", ".kind: must be GpuConfig", kind=None),
    _gpu("another kind", ".kind: must be GpuConfig", kind="MigConfig"),
    _gpu("a kind of another family", ".kind: must be GpuConfig", kind="FpgaConfig"),
    _gpu("a kind that is no text", ".kind: must be GpuConfig", kind=1),
    _gpu("an unknown field", ".shring: unknown field; known: kind, apiVersion, deviceMetadata, sharing", shring={}),
    _gpu("another spelling", ".device_metadata: unknown field; did you mean deviceMetadata?", device_metadata=True),
    _gpu("an unknown field that is null", ".Sharing: unknown field; did you mean sharing?", Sharing=None),
    _gpu("a field with a line break", ".a b: unknown field", **{"a\nb": 1}),
    _gpu("very many fields", ": has more than 64 fields", **{f"f{number}": 1 for number in range(1000)}),
    _gpu("text for a condition", ".deviceMetadata: must be true or false", deviceMetadata="true"),
    _gpu("text for an object", ".sharing: must be an object; known: strategy, timeSlicing, mps", sharing="Mps"),
    _gpu("a list for an object", ".sharing: must be an object", sharing=["Mps"]),
    _sharing("another strategy", _STRATEGY, strategy="MPS"),
    _sharing("a strategy that is no text", _STRATEGY, strategy={"Mps": {}}),
    _sharing("a field that is deeper", ".sharing.MPS: unknown field; did you mean mps?", MPS={}),
    _sharing("parameters of another strategy", ".sharing.mps: is for strategy: Mps only", mps={}),
    _sharing(
        "parameters of two strategies",
        ".sharing.timeSlicing: is for strategy: TimeSlicing only",
        strategy="Mps",
        mps={},
        timeSlicing={},
    ),
    _sharing(
        "another interval",
        ".sharing.timeSlicing.interval: must be one of Default, Long, Medium, Short",
        strategy="TimeSlicing",
        timeSlicing={"interval": "10ms"},
    ),
    _mps("nothing of a whole", _PERCENTAGE, activeThreadPercentage=0),
    _mps("more than a whole", _PERCENTAGE, activeThreadPercentage=101),
    _mps("a percentage with a fraction", _PERCENTAGE, activeThreadPercentage=50.5),
    _mps("a percentage in quotes", _PERCENTAGE, activeThreadPercentage="50"),
    _mps("no unit of this kind", _QUANTITY, pinnedDeviceMemoryLimit="1GB"),
    _mps("no number", _QUANTITY, pinnedDeviceMemoryLimit="much"),
    _mps("nothing", _QUANTITY, pinnedDeviceMemoryLimit="0Gi"),
    _mps("nothing as a number", _QUANTITY, pinnedDeviceMemoryLimit=0),
    _mps("less than nothing", _QUANTITY, pinnedDeviceMemoryLimit="-1Gi"),
    _mps("less than nothing as a number", _QUANTITY, pinnedDeviceMemoryLimit=-0.5),
    _mps("an exponent that is too large", _QUANTITY, pinnedDeviceMemoryLimit="1e401"),
    _mps("too many digits", _QUANTITY, pinnedDeviceMemoryLimit="1" * 401),
    _mps("a condition for an amount", _QUANTITY, pinnedDeviceMemoryLimit=True),
    _mps("every field wrong", _PERCENTAGE, _QUANTITY, activeThreadPercentage=-1, pinnedDeviceMemoryLimit=""),
    _fpga("a name with a blank", _FUNCTION, function="a b"),
    _fpga("a name with a line break at its end", _FUNCTION, function="aes\n"),
    _fpga("a name that is too long", _FUNCTION, function="f" * 65),
    _fpga("a number for a name", _FUNCTION, function=3),
    _fpga("another release", ".release: must be one of Blank, Keep", release="Clear"),
    _fpga("no time", _TIMEOUT, timeoutSeconds=0),
    _fpga("too much time", _TIMEOUT, timeoutSeconds=3601),
    _fpga("a duration", _TIMEOUT, timeoutSeconds="60s"),
    _fpga("fields of a GpuConfig", ".sharing: unknown field", sharing={}),
    _acme(
        "everything of a third party's",
        source={"type": "Local", "path": "/data"},
        windows=[{"start": 0}, {"start": 1, "label": "night"}],
        labels={"a.b": "1Gi"},
        modes=["fast", "slow"],
        nodes=[{"key": "example.com/rack", "operator": "In", "values": ["1"]}],
        sharing={"strategy": "Mps", "mps": {}},
    ),
    _acme("a field of the other kind", ".size: unknown field", kind="GpuConfig"),
    _acme("no size", ".size: must be a quantity above zero", size=None),
    _acme("a source of no known type", ".source: must be an object of type Local or Remote", source={"type": "Tape"}),
    _acme(
        "a source with the fields of the other",
        ".source: must be an object of type Local or Remote",
        source={"type": "Remote", "path": "/a"},
    ),
    _acme("too many windows", ".windows: must be a list of at most 2 entries", windows=[{"start": 0}] * 3),
    _acme("a window without start", ".windows: must be a list", windows=[{"start": 0}, {"label": "night"}]),
    _acme("a window with another field", ".windows: must be a list", windows=[{"start": 0, "end": 1}]),
    _acme("no labels", ".labels: must be a map of at most 2 entries", labels={}),
    _acme("a label of another type", ".labels: must be a map", labels={"a": "1Gi", "b": "nothing"}),
    _acme("another mode", ".modes: must be a list; each entry must be one of fast, slow", modes=["fast", "idle"]),
    _acme("values for another operator", ".nodes: must be a list", nodes=[{"key": "a", "operator": "In"}]),
)
