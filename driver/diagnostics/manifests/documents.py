"""The documents of manifests, each with its place, and what is wrong with them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.v1alpha1 import API_VERSION
from kerf_dra.api.manifests.claim_documents import is_claim_document
from kerf_dra.api.manifests.documents import find_document_problems
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.class_validation import find_class_problems
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.scheduling.selector_problems import find_selector_problems


class PlacedDocument(NamedTuple):
    """A document, and where it is."""

    source: str
    """The file, or what else the documents come from."""
    number: int
    """1-based within the source; all objects of a List have that of the List."""
    body: JsonObject

    def __str__(self) -> str:
        metadata = self.body.get("metadata")
        names = metadata if isinstance(metadata, dict) else {}
        name = names.get("name") or names.get("generateName") or "without name"
        return f"{self.source}: document {self.number}: {self.body.get('kind') or 'no kind'} {name}"


def place_documents(source: str, bodies: Sequence[Any]) -> Iterator[PlacedDocument]:
    """Yield the documents of ``source``, of a List its objects. Raises InvalidDocumentError for what is no object."""
    for number, body in enumerate(bodies, start=1):
        if isinstance(body, dict) and body.get("kind") == "List" and isinstance(body.get("items"), list):
            yield from (PlacedDocument(source, number, item) for item in body["items"] if isinstance(item, dict))
        elif isinstance(body, dict):
            yield PlacedDocument(source, number, body)
        elif body is not None:
            message = f"is a {type(body).__name__}, not an object"
            raise InvalidDocumentError(source, [Problem(f"document {number}", message)])


def find_problems(documents: Sequence[PlacedDocument]) -> Iterator[str]:
    """Yield a line for every problem of every document."""
    for each in documents:
        problems = find_document_problems(each.body)
        if each.body.get("apiVersion") == API_VERSION and each.body.get("kind") == "ResourceClass":
            problems += find_class_problems(each.body, installed_families())
        if is_claim_document(each.body):
            problems += find_selector_problems(each.body)
        yield from (f"{each}: {problem}" for problem in problems)
