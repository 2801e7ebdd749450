"""What a discovery handler is to the plugin, built in or a program of its own."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeVar

import msgspec

from kerf_dra.api.discovery.v1alpha1 import DiscoveryRequest, FoundDevice
from kerf_dra.api.errors import TransientError
from kerf_dra.api.kerf.validation import check_document, convert_document
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml

DetailsT = TypeVar("DetailsT", bound=msgspec.Struct)


class HandlerError(TransientError):
    """A handler does not do what it should, or cannot; it is tried again, with back-off."""


class DetailsError(HandlerError):
    """The details of a configuration are not those that its handler takes."""


class NodeDiscoveryHandler(Protocol):
    """Something that finds devices."""

    def discover(self, request: DiscoveryRequest) -> AsyncGenerator[Sequence[FoundDevice], None]:
        """Yield all devices that are there, at once and again after each change, without end.

        Raises HandlerError where it cannot go on; a generator that ends, and any other error, count as one. May be
        called by several configurations at the same time.
        """
        ...


def decode_details(details: str, type_: type[DetailsT]) -> DetailsT:
    """Decode details in YAML strictly. Raises DetailsError with every problem."""
    try:
        document = parse_yaml(details.encode(), type_)
    except NotYamlError as error:
        raise DetailsError(f"details {error}") from None
    checked = check_document({} if document is None else document, type_, "details")
    if checked.problems or checked.cleaned is None:
        raise DetailsError("; ".join(f"{problem.path} {problem.message}" for problem in checked.problems))
    decoded: DetailsT = convert_document(checked.cleaned, type_)
    return decoded
