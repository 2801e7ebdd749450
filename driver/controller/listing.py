"""The lists that a controller begins with: nothing is decided before every one of them is in.

A list that does not come ends the process with its name: whoever looks at the pod sees what is missing, and Kubernetes
starts it again.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from api.errors import TransientError
from driver.runtime.probes import Check, Probes

_HINT: Final = "are deploy/crds installed, and may this controller list it (deploy/manifests, deploy/classic)?"


class Listed(Protocol):
    """An informer, whatever its kind."""

    @property
    def synced(self) -> bool: ...
    async def run(self) -> None: ...
    async def wait_synced(self) -> None: ...


class NotListedError(TransientError):
    """Lists that did not come in time."""

    def __init__(self, names: list[str], within_s: float) -> None:
        super().__init__(f"not listed within {within_s:g} s: {', '.join(names)}; {_HINT}")


async def start_informers(
    group: TaskGroup, probes: Probes, informers: Mapping[str, Listed], *, within_s: float
) -> None:
    """Run ``informers`` in ``group``, with a check for each, and wait for their lists. Raises NotListedError."""
    for name, informer in informers.items():
        probes.add_check(name, _check(informer))
        group.start_soon(informer.run)
    with anyio.move_on_after(within_s):
        for informer in informers.values():
            await informer.wait_synced()
    if missing := [name for name, informer in informers.items() if not informer.synced]:
        raise NotListedError(missing, within_s)


def _check(informer: Listed) -> Check:
    return lambda: None if informer.synced else f"not listed yet; {_HINT}"
