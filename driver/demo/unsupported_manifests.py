"""Manifests that are right and that a demo cannot run: those for other releases of Kubernetes, or for other programs.

Each kind of them is one line, because there is one thing to do about all of its documents. Pure.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.model.names import list_names

_KUEUE: Final = "kueue.x-k8s.io"
"""The API group of Kueue, and the end of that of its configuration."""
_RESOURCE: Final = "resource.k8s.io"
_PARAMETERS: Final = frozenset({"ResourceClass", *(kind.kind for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS))})
"""Kerf's own kinds that are of one generation only: classes, and what they name on Kubernetes 1.27 to 1.31."""
_QUOTA: Final = ("v1", "ResourceQuota")


class ManifestKind(NamedTuple):
    """Where a document is, and of which kind it is."""

    file: Path
    api_version: str
    kind: str

    @property
    def key(self) -> tuple[str, str]:
        return self.api_version, self.kind

    @property
    def is_of_claims(self) -> bool:
        """Whether the two generations of DRA have different kinds for it."""
        return self.api_version.partition("/")[0] == _RESOURCE or self.kind in _PARAMETERS

    @property
    def needs_other_program(self) -> bool:
        """Whether only a program acts on it that no demo has."""
        group = self.api_version.partition("/")[0]
        return self.key == _QUOTA or group == _KUEUE or group.endswith(f".{_KUEUE}")


def find_other_release(
    found: Sequence[ManifestKind],
    known: Collection[tuple[str, str]],
    elsewhere: Collection[tuple[str, str]],
    *,
    is_classic: bool,
) -> str:
    """Return a sentence about documents whose kinds are of the other generation of DRA; empty: there are none.

    ``known`` are the versions and kinds of this demo, ``elsewhere`` those of the other one: ``is_classic`` says which
    is which. Kinds that have nothing to do with claims are of both generations.
    """
    misplaced = [one for one in found if one.key in elsewhere and one.key not in known and one.is_of_claims]
    if not misplaced:
        return ""
    release = "Kubernetes 1.32 and later" if is_classic else "Kubernetes 1.27 to 1.31"
    advice = "leave out --classic" if is_classic else "add --classic"
    return f"{_describe(misplaced, 'is', 'are')} for {release}: {advice}"


def find_missing_programs(found: Sequence[ManifestKind]) -> str:
    """Return a sentence about documents for programs that no demo has; empty: there are none."""
    needy = [one for one in found if one.needs_other_program]
    if not needy:
        return ""
    of_kueue, of_quota = ([one for one in needy if (one.key == _QUOTA) is is_quota] for is_quota in (False, True))
    programs = [*(["Kueue"] if of_kueue else []), *(["Kubernetes' quota controller"] if of_quota else [])]
    has_none = "the demo has neither" if len(programs) > 1 else "the demo does not have it"
    what = _describe(needy, "needs", "need")
    return f"{what} {' and '.join(programs)}, and {has_none}: apply this to a cluster (docs/quota.md), or leave it out"


def _describe(found: Sequence[ManifestKind], singular: str, plural: str) -> str:
    """Return where the documents are, and of which kinds, with a verb."""
    files = [*dict.fromkeys(one.file for one in found)]
    folders = {file.parent for file in files}
    where = str(folders.pop()) if len(files) > 1 and len(folders) == 1 else list_names([str(file) for file in files])
    kinds = [*dict.fromkeys(f"{one.api_version} {one.kind}" for one in found)]
    return f"{where}: {list_names(kinds)} {singular if len(kinds) == 1 else plural}"
