"""Waiting for a state of the cluster."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import aiohttp
import anyio

from tools.realcluster.api import StatusError
from tools.realcluster.cluster import load_factor

ValueT = TypeVar("ValueT")

PATIENCE_S: Final = 60.0
"""The time limit for what takes a few seconds. A pod whose claim the Node authorizer has not seen
yet waits for the kubelet's next sync, some 15 s."""
_POLL_S: Final = 0.2


async def eventually(
    what: str,
    probe: Callable[[], Awaitable[ValueT | None]],
    *,
    within_s: float = PATIENCE_S,
    but: Callable[[], Awaitable[object]] | None = None,
) -> ValueT:
    """Poll ``probe`` and return its first true result; errors of the API server are retried.

    ``within_s`` is the limit on an idle machine: it follows the load, because other tests may run beside. Raises
    AssertionError with ``what`` and the result of ``but`` when there is no true result by then.
    """
    last: object = "nothing yet"
    began = anyio.current_time()
    with anyio.move_on_after(within_s) as limit:
        while True:
            limit.deadline = max(limit.deadline, began + within_s * load_factor())
            try:
                answer = await probe()
                if answer:
                    return answer
                last = answer
            except (aiohttp.ClientError, StatusError, TimeoutError) as error:
                last = error
            await anyio.sleep(_POLL_S)
    instead = await but() if but else last
    waited_s = limit.deadline - began
    raise AssertionError(f"after {waited_s:.0f} s still not: {what}; instead: {instead}")
