"""What docs/security.md says, line by line, that Kerf's accounts may do."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tools.sources import ROOT

PAGE: Final = ROOT / "docs/security.md"
_RESOURCE: Final = re.compile(r"`([a-z/]+)`(?: of `([a-z0-9.]+)`)?")
_GROUPS: Final = {
    "": ("nodes", "pods", "events"),
    "coordination.k8s.io": ("leases",),
    "kerf.dev": (
        "resourceclasses",
        "nodeinventories",
        "fpgashells",
        "fpgaimages",
        "discoveryconfigurations",
        "discovereddevices",
        "cardmaintenances",
        "gpuclassparameters",
        "fpgaclassparameters",
        "gpuclaimparameters",
        "fpgaclaimparameters",
    ),
    "resource.k8s.io": ("resourceclaims", "resourceslices", "deviceclasses", "podschedulingcontexts"),
}
"""The groups of the resources of which the page does not say one."""


class Permission(NamedTuple):
    """One verb on one resource."""

    account: str
    """As the page calls it: the controller, the kubelet plugin."""
    folder: str
    """The folder of ``deploy`` that gives it."""
    verb: str
    group: str
    """Of the API, empty: the core."""
    resource: str
    """With its subresource, as in ``resourceclaims/status``."""


def read_permissions() -> Iterator[Permission]:
    """Yield the lines of the page's table of accounts; a line without an account goes on with the one before."""
    table = PAGE.read_text().partition("## Kerf's own accounts")[2]
    account = folder = ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[1] not in {"may", "---"}:
            if cells[0]:
                account, folder = re.split(r" \(| with ", cells[0])[0], re.findall("`deploy/([a-z-]+)", cells[0])[0]
            for verb in cells[1].split(", "):
                for resource, group in _RESOURCE.findall(cells[2]):
                    yield Permission(account, folder, verb, group or _group_of(resource), resource)


def _group_of(resource: str) -> str:
    kind = resource.partition("/")[0]
    (group,) = (group for group, kinds in _GROUPS.items() if kind in kinds)
    return group
