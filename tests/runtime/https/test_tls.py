"""No authority is trusted inside the context; afterwards those of the system are again."""

import os
import ssl

import pytest

from kerf_dra.driver.runtime.https.tls import without_system_roots
from tests.kube.certificates import HERE


def authorities() -> int:
    return ssl.create_default_context().cert_store_stats()["x509_ca"]


@pytest.fixture(autouse=True)
def one_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "ca-1.pem"))


def test_contexts_made_inside_trust_nobody_and_later_ones_whom_the_system_trusts() -> None:
    assert authorities() == 1
    with without_system_roots():
        assert authorities() == 0
    assert authorities() == 1


def test_a_variable_that_was_not_there_is_not_there_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with without_system_roots():
        pass
    assert "SSL_CERT_FILE" not in os.environ
