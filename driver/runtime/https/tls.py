"""TLS contexts without the system's certificate authorities.

aiohttp makes two TLS contexts when it is imported (``aiohttp.connector``) and reads the system's authorities into each:
140 of them take 1 MB and 15 ms. Kerf uses neither: the API server is verified by the cluster's authority, in a context
of its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FILE: Final = "SSL_CERT_FILE"
"""The variable that names OpenSSL's file of trusted authorities (``SSL_CTX_set_default_verify_paths(3)``)."""


@contextmanager
def without_system_roots() -> Iterator[None]:
    """Let TLS contexts that are made inside trust no authority; contexts made later trust the system's again.

    The process must have one thread: the environment belongs to all threads.
    """
    before = os.environ.get(_FILE)
    os.environ[_FILE] = os.devnull
    try:
        yield
    finally:
        del os.environ[_FILE]
        if before is not None:
            os.environ[_FILE] = before
