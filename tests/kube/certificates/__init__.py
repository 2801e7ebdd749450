"""Certificates for tests of TLS, made with openssl, valid for a hundred years, and trusted by nobody.

``server-1`` and ``server-2`` are for the name ``kerf.test``, signed by ``ca-1`` and ``ca-2``, each with its key;
``client-1`` and ``client-2`` are signed by ``ca-1``. ``local`` is for 127.0.0.1, signed by itself, with its key.
"""

from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
