"""What every version of the kubelet's DRA service offers: rows of methods over model values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.grpc_method import GrpcMethod
from api.model.names import ClaimRef
from api.model.prepared import PrepareOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DraService:
    """One wire version of ``DRAPlugin``."""

    supported_version: str
    """How the plugin names it in its registration, e.g. ``v1.DRAPlugin``."""
    prepare: GrpcMethod[Sequence[ClaimRef], Mapping[str, PrepareOutcome]]
    """Claims to make ready; the answer has one entry for each claim's UID."""
    unprepare: GrpcMethod[Sequence[ClaimRef], Mapping[str, str]]
    """Claims to take back; the answer has one error for each claim's UID, empty for success."""
