"""The claims of a user's manifests, of which a run makes copies instead of claims for one device of the driver.

A driver's own classes and ``config`` are tried so. Example: a ResourceClaim with the opaque parameters of the driver,
for which ``NodePrepareResources`` of the copy has the same entry ``config`` of the allocation as for a pod's claim.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.manifests.claim_documents import (
    convert_to_v1,
    find_claim_problems,
    find_claim_spec,
    is_claim_document,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaimSpec
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.scheduling.selector_problems import find_selector_problems

MOST_CLAIMS: Final = 8
"""The most claims of one row, which are in one call: a pod rarely has more."""
_KINDS: Final = ("ResourceClaim", "ResourceClaimTemplate")


class GivenClaim(NamedTuple):
    """A claim of a manifest: its copies have the same spec."""

    source: str
    """The file."""
    number: int
    """Of the document in the file, from 1."""
    spec: ResourceClaimSpec

    @property
    def place(self) -> str:
        """The file and the document, for messages."""
        return f"{self.source}: document {self.number}"


def read_claims(source: str, documents: Iterable[tuple[int, JsonObject]]) -> Sequence[GivenClaim]:
    """Return the claims of numbered documents of ``source``: ResourceClaims, and the specs of ResourceClaimTemplates.

    Raises InvalidDocumentError with all problems, when a document is of another kind or asks for nothing, and when
    there is no claim, or there are more than MOST_CLAIMS.
    """
    numbered = list(documents)
    problems = [
        Problem(f"document {number}", str(problem)) for number, body in numbered for problem in _find_problems(body)
    ]
    if not numbered:
        problems.append(Problem("", "has no claim: write ResourceClaims or ResourceClaimTemplates"))
    if len(numbered) > MOST_CLAIMS:
        problems.append(Problem("", f"has {len(numbered)} claims: a row uses {MOST_CLAIMS} at most"))
    if problems:
        raise InvalidDocumentError(source, problems)
    return [GivenClaim(source, number, _decode_spec(body)) for number, body in numbered]


def list_classes(spec: ResourceClaimSpec) -> Mapping[str, str]:
    """Return the names of the classes of a claim by the paths of the fields that have them."""
    return dict(_iter_classes(spec))


def _iter_classes(spec: ResourceClaimSpec) -> Iterator[tuple[str, str]]:
    for index, request in enumerate(spec.devices.requests):
        path = f"spec.devices.requests[{index}]"
        if request.exactly is not None:
            yield f"{path}.exactly.deviceClassName", request.exactly.device_class_name
        for place, alternative in enumerate(request.first_available):
            yield f"{path}.firstAvailable[{place}].deviceClassName", alternative.device_class_name


def _find_problems(body: Mapping[str, Any]) -> Iterator[Problem]:
    if not is_claim_document(body) or body.get("kind") not in _KINDS:
        kind = f"{body.get('kind') or 'no kind'} of {body.get('apiVersion') or 'no apiVersion'}"
        yield Problem("kind", f"{kind:.200} is no claim: leave it out, and apply classes to the cluster before")
        return
    problems = [*find_claim_problems(body), *find_selector_problems(body)]
    yield from problems
    spec, path = find_claim_spec(body)
    if not problems and not (spec.get("devices") or {}).get("requests"):
        yield Problem(f"{path}.devices.requests", "is empty: the claim asks for no device")


def _decode_spec(body: JsonObject) -> ResourceClaimSpec:
    spec, _ = find_claim_spec(convert_to_v1(body))
    return KINDS.resource_claims.decode(msgspec.json.encode({"metadata": {}, "spec": spec})).spec
