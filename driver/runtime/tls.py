"""Certificate authorities of the system that a process has no use for.

aiohttp makes two TLS contexts when it is imported (``aiohttp.connector``) and reads the system's authorities into each:
140 of them take 1 MB and 15 ms. The API server is verified by the cluster's authority, in a context of its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FILE: Final = "SSL_CERT_FILE"
"""Where OpenSSL looks for the authorities that are trusted by default (``SSL_CTX_set_default_verify_paths(3)``)."""


@contextmanager
def without_system_roots() -> Iterator[None]:
    """TLS contexts made inside trust nobody, for good; those made later trust whom the system trusts.

    For a process with one thread: the environment is everybody's.
    """
    before = os.environ.get(_FILE)
    os.environ[_FILE] = os.devnull
    try:
        yield
    finally:
        del os.environ[_FILE]
        if before is not None:
            os.environ[_FILE] = before
