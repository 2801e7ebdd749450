"""Kinds whose definitions may be installed after the program that reads them."""

import logging
from typing import Any

import anyio

from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import ApiError, ForbiddenError, NotFoundError

_log = logging.getLogger(__name__)


async def wait_until_readable(client: Client, kind: Kind[Any], *, poll_s: float) -> None:
    """Wait until ``kind`` is there and may be listed, with ``poll_s`` seconds between two tries.

    There is no event when a definition is installed or a permission is given. Any other fault is not waited for: an
    Informer tries again by itself, and says so.
    """
    while not await _is_readable(client, kind):  # noqa: ASYNC110  (there is no event, as said)
        await anyio.sleep(poll_s)


async def _is_readable(client: Client, kind: Kind[Any]) -> bool:
    try:
        await client.list(kind)
    except (NotFoundError, ForbiddenError) as error:
        _log.debug("%s cannot be read: %s", kind.plural, error)
        return False
    except ApiError:
        return True
    return True
