"""The ResourceClasses of the cluster, watched once for all families of a process."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import anyio

from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.driver.kube.discovery import prove_absence
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import ApiError, ForbiddenError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange

_log = logging.getLogger(__name__)


class ResourceClassWatch:
    """A watch that each family's plugin follows while it runs; the one that came first runs it for all."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informer = Informer(client, RESOURCE_CLASSES, on_change=self._notify_followers)
        self._running = anyio.Lock()
        self._can_watch = False
        """Whether the kind has been there and readable."""
        self._followers: list[Callable[[], None]] = []

    @property
    def synced(self) -> bool:
        """Whether the classes have been complete."""
        return self._informer.synced

    @property
    def classes(self) -> Iterable[ResourceClassObject]:
        """The classes, as far as known now."""
        return self._informer.store.values()

    async def list_now(self) -> Sequence[ResourceClassObject] | None:
        """List the classes now; None: there is no such kind, or it may not be read. Raises other ApiErrors.

        A 404 that discovery does not confirm is one of them: shares that pods have would be withdrawn for it.
        """
        try:
            listed = (await self._client.list(RESOURCE_CLASSES)).items
        except (NotFoundError, ForbiddenError) as error:
            if isinstance(error, NotFoundError):
                await prove_absence(self._client, RESOURCE_CLASSES)
            _log.warning("no shared devices are published until ResourceClasses can be watched: %s", error)
            return None
        self._can_watch = True
        return listed

    async def follow(self, on_change: Callable[[], None], *, poll_s: float) -> None:
        """Have ``on_change`` called after each change until cancelled, and now if another follower is already there.

        Where the classes cannot be watched, that is tried every ``poll_s`` seconds: their definition may be installed
        after the plugin.
        """
        self._followers.append(on_change)
        try:
            if self._running.locked():
                on_change()
            async with self._running:  # the first caller; when it ends, the next one goes on from there
                await self._run(poll_s)
        finally:
            self._followers.remove(on_change)

    async def _run(self, poll_s: float) -> None:
        while not self._can_watch:
            await anyio.sleep(poll_s)
            with suppress(ApiError):
                await self._client.list(RESOURCE_CLASSES)
                self._can_watch = True
                _log.info("ResourceClasses can be watched now")
        await self._informer.run()

    def _notify_followers(self, _: ObjectChange[ResourceClassObject]) -> None:
        for follower in tuple(self._followers):
            follower()
