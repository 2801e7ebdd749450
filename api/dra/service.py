"""What every version of the kubelet's DRA service offers: rows of methods over model values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from api.grpc_method import Method
from api.model.names import ClaimRef
from api.model.prepared import PrepareOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DraService:
    """One wire version of ``DRAPlugin``."""

    supported_version: str
    """How the plugin names it in its registration, e.g. ``v1.DRAPlugin``."""
    prepare: Method[Sequence[ClaimRef], Mapping[str, PrepareOutcome]]
    """Claims to make ready; the answer has one entry for each claim's UID."""
    unprepare: Method[Sequence[ClaimRef], Mapping[str, str]]
    """Claims to take back; the answer has one error for each claim's UID, empty for success."""


def build_service(
    messages: ModuleType,
    *,
    service: str,
    supported_version: str,
    encode_outcome: Callable[[PrepareOutcome], object],
    decode_outcome: Callable[[Any], PrepareOutcome],
) -> DraService:
    """A version whose calls take any number of claims and answer for each by its UID.

    ``messages`` is its generated module; ``encode_outcome`` makes its ``NodePrepareResourceResponse`` of one claim.
    """

    def encode_claims(claims: Sequence[ClaimRef]) -> list[Any]:
        return [messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]

    def decode_claims(request: Any) -> tuple[ClaimRef, ...]:  # noqa: ANN401  (a message of either call)
        return tuple(ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims)

    def serialize(message: type[Any], claims: object) -> bytes:
        data: bytes = message(claims=claims).SerializeToString()
        return data

    prepare_request, prepare_response = messages.NodePrepareResourcesRequest, messages.NodePrepareResourcesResponse
    unprepare_request = messages.NodeUnprepareResourcesRequest
    unprepare_response = messages.NodeUnprepareResourcesResponse
    prepare: Method[Sequence[ClaimRef], Mapping[str, PrepareOutcome]] = Method(
        service=service,
        name="NodePrepareResources",
        encode_request=lambda claims: serialize(prepare_request, encode_claims(claims)),
        decode_request=lambda data: decode_claims(prepare_request.FromString(data)),
        encode_response=lambda outcomes: serialize(
            prepare_response, {uid: encode_outcome(outcome) for uid, outcome in outcomes.items()}
        ),
        decode_response=lambda data: {
            uid: decode_outcome(claim) for uid, claim in prepare_response.FromString(data).claims.items()
        },
    )
    unprepare: Method[Sequence[ClaimRef], Mapping[str, str]] = Method(
        service=service,
        name="NodeUnprepareResources",
        encode_request=lambda claims: serialize(unprepare_request, encode_claims(claims)),
        decode_request=lambda data: decode_claims(unprepare_request.FromString(data)),
        encode_response=lambda errors: serialize(
            unprepare_response,
            {uid: messages.NodeUnprepareResourceResponse(error=error) for uid, error in errors.items()},
        ),
        decode_response=lambda data: {
            uid: claim.error for uid, claim in unprepare_response.FromString(data).claims.items()
        },
    )
    return DraService(supported_version=supported_version, prepare=prepare, unprepare=unprepare)
