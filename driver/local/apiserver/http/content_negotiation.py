"""In which form an answer goes out: the objects themselves, a printed table, or metadata only.

The form is asked for in ``Accept`` (``application/json;as=Table;v=v1;g=meta.k8s.io``). Answers are always encoded in
JSON: clients of built-in kinds that prefer protobuf offer it too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeAlias

from driver.local.apiserver.meta.status_errors import ApiStatusError

ResponseForm: TypeAlias = Literal["object", "table", "metadata"]

_FORMS: dict[str, ResponseForm] = {
    "": "object",
    "Table": "table",
    "PartialObjectMetadata": "metadata",
    "PartialObjectMetadataList": "metadata",
}
_JSON = frozenset({"application/json", "application/*", "*/*"})


@dataclass(frozen=True, slots=True)
class _MediaRange:
    media_type: str
    parameters: dict[str, str]


def negotiate_form(accept: str) -> ResponseForm:
    """The first form that a client accepts and this server has. Raises RefusedError (406)."""
    if not accept.strip():
        return "object"
    for offer in _parse_accept(accept):
        form = _FORMS.get(offer.parameters.get("as", ""))
        if offer.media_type in _JSON and form and offer.parameters.get("v", "v1") == "v1":
            return form
    raise ApiStatusError(
        HTTPStatus.NOT_ACCEPTABLE,
        "NotAcceptable",
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )


def _parse_accept(accept: str) -> Iterator[_MediaRange]:
    for part in accept.split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        yield _MediaRange(media_type.lower(), {name: value.strip('"') for name, _, value in pairs})
