import shutil
import sys
from pathlib import Path

import anyio
import pytest

from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.credentials import REREAD_S, Access, Credentials
from kerf_dra.driver.kube.http.errors import AccessError
from tests.kube.certificates import HERE
from tests.kube.http.test_config import config, login_program, write
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def files(tmp_path: Path) -> Access:
    """Token, trust and certificate in files of their own."""
    for name, source in (("ca", "ca-1.pem"), ("certificate", "client-1.pem"), ("key", "client-1.key")):
        shutil.copy(HERE / source, tmp_path / name)
    (tmp_path / "token").write_text("one\n")
    return Access(
        server="https://example.com",
        ca=tmp_path / "ca",
        certificate=tmp_path / "certificate",
        key=tmp_path / "key",
        token=tmp_path / "token",
    )


async def token(credentials: Credentials) -> str:
    headers, _ = await credentials.current()
    return headers["Authorization"]


async def test_a_rotated_token_is_used_within_a_minute(files: Access, tmp_path: Path) -> None:
    credentials = Credentials(files)
    assert await token(credentials) == "Bearer one"
    (tmp_path / "token").write_text("two")
    await anyio.sleep(REREAD_S - 1)
    assert await token(credentials) == "Bearer one"
    await anyio.sleep(1)
    assert await token(credentials) == "Bearer two"


@pytest.mark.parametrize(
    "replaced", [{"certificate": "client-2.pem", "key": "client-2.key"}, {"ca": "ca-2.pem"}], ids=["certificate", "ca"]
)
async def test_rotated_certificates_make_a_new_tls_context_and_nothing_else_does(
    files: Access, tmp_path: Path, replaced: dict[str, str]
) -> None:
    credentials = Credentials(files)
    _, first = await credentials.current()
    (tmp_path / "token").write_text("two")
    await anyio.sleep(REREAD_S)
    _, same = await credentials.current()
    assert same is first
    for name, source in replaced.items():
        shutil.copy(HERE / source, tmp_path / name)
    await anyio.sleep(REREAD_S)
    _, other = await credentials.current()
    assert other is not first


@pytest.mark.parametrize("broken", ["token", "ca", "key"])
async def test_while_a_file_cannot_be_read_what_was_read_last_stays_in_use(
    files: Access, tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = Credentials(files)
    before = await credentials.current()
    (tmp_path / broken).write_text("")
    await anyio.sleep(REREAD_S)
    assert await credentials.current() == before
    assert "the earlier ones stay in use" in caplog.text
    (tmp_path / broken).unlink()
    await anyio.sleep(REREAD_S)
    assert await credentials.current() == before


async def test_half_a_rotation_is_waited_out(files: Access, tmp_path: Path) -> None:
    """Certificate and key are two files: read in between, they do not fit one another."""
    credentials = Credentials(files)
    _, first = await credentials.current()
    shutil.copy(HERE / "client-2.pem", tmp_path / "certificate")
    await anyio.sleep(REREAD_S)
    assert (await credentials.current())[1] is first
    shutil.copy(HERE / "client-2.key", tmp_path / "key")
    await anyio.sleep(REREAD_S)
    assert (await credentials.current())[1] is not first


async def test_renewing_tells_whether_there_is_something_new_to_try(files: Access, tmp_path: Path) -> None:
    credentials = Credentials(files)
    await credentials.current()
    assert not await credentials.renew()
    (tmp_path / "token").write_text("two")
    assert await credentials.renew()
    assert await token(credentials) == "Bearer two"


@pytest.mark.parametrize("broken", ["token", "ca", "certificate", "key"])
async def test_credentials_that_never_were_usable_are_an_error(files: Access, tmp_path: Path, broken: str) -> None:
    (tmp_path / broken).write_text("")
    with pytest.raises(AccessError):
        await Credentials(files).current()


async def test_comments_around_certificates_may_be_in_any_language(files: Access, tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    ca.write_text(f"# Zürich ✓\n{ca.read_text()}", encoding="utf-8")
    await Credentials(files).current()


async def test_a_login_program_is_asked_once_and_again_when_its_token_is_refused(tmp_path: Path) -> None:
    user = login_program(tmp_path, {"token": "token-NUMBER"})
    access = await load_access(write(tmp_path / "config", config(user=user)))
    credentials = Credentials(access)
    assert await token(credentials) == "Bearer token-1"
    await anyio.sleep(10 * REREAD_S)
    assert await token(credentials) == "Bearer token-1"
    assert await credentials.renew()
    assert await token(credentials) == "Bearer token-2"


async def test_a_login_program_may_give_a_certificate(tmp_path: Path) -> None:
    status = {
        "clientCertificateData": (HERE / "client-1.pem").read_text(),
        "clientKeyData": (HERE / "client-1.key").read_text(),
    }
    access = await load_access(write(tmp_path / "config", config(user=login_program(tmp_path, status))))
    headers, context = await Credentials(access).current()
    assert headers == {}
    assert context is not None


async def test_a_login_program_that_gives_nothing_is_an_error(tmp_path: Path) -> None:
    user = {"exec": {"command": str(tmp_path / "gone"), "apiVersion": "client.authentication.k8s.io/v1"}}
    access = await load_access(write(tmp_path / "config", config(user=user)))
    with pytest.raises(AccessError, match="the credential plugin gave neither a token nor a certificate"):
        await Credentials(access).current()


async def test_where_the_client_library_is_missing_the_error_says_what_else_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image has no kubernetes, which runs credential plugins."""
    monkeypatch.setitem(sys.modules, "kubernetes.aio.client", None)
    access = await load_access(write(tmp_path / "config", config(user=login_program(tmp_path, {"token": "secret"}))))
    with pytest.raises(AccessError, match=r"context 'main' .* package kubernetes, .* with a token or a certificate"):
        await Credentials(access).current()
