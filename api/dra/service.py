"""The interface of the kubelet's DRA service, which every version implements: its methods over model values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DraService:
    """One wire version of ``DRAPlugin``."""

    supported_version: str
    """The name of the version in the plugin's registration, e.g. ``v1.DRAPlugin``."""
    prepare: GrpcMethod[Sequence[ClaimRef], Mapping[str, PrepareOutcome]]
    """Prepare claims; the answer has an outcome for each claim's UID."""
    unprepare: GrpcMethod[Sequence[ClaimRef], Mapping[str, str]]
    """Unprepare claims; the answer has an error for each claim's UID, empty for success."""
