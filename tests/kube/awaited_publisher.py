"""A slice publisher that one can wait for."""

from typing import Any

from kerf_dra.driver.kube.slice_plan import plan_pool
from kerf_dra.driver.kube.slice_publisher import SlicePublisher
from kerf_dra.driver.runtime.notifier import Notifier


class AwaitedPublisher(SlicePublisher):
    """Knows which pools may not be on the server yet: one is, once a pass over it leaves nothing to write."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unpublished: set[str] = set()
        self._passed = Notifier()

    async def wait_published(self) -> None:
        """What was last given to ``publish`` is on the server, and nothing else."""
        while self._desired is None or not self._informer.synced or self._unpublished:
            await self._passed.wait()

    def _queue_all(self) -> None:
        super()._queue_all()
        self._unpublished |= {
            *(self._desired or ()),
            *(value.spec.pool.name for value in self._informer.store.values()),
        }
        self._passed.notify()  # there may be nothing to publish

    async def _reconcile(self, name: str) -> None:
        await super()._reconcile(name)
        wanted = (self._desired or {}).get(name)
        if not plan_pool(wanted, self._informer.store.indexed("pool", name), self._context()):
            self._unpublished.discard(name)
            self._passed.notify()
