import base64
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.driver.kube.http.config import in_cluster, load_access
from kerf_dra.driver.kube.http.credentials import Access, CredentialPlugin
from kerf_dra.driver.kube.http.errors import AccessError

Json = dict[str, Any]


def config(cluster: Json | None = None, user: Json | None = None, **fields: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://example.com:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **fields,
    }


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


async def load(document: object, tmp_path: Path, context: str | None = None) -> Access:
    return await load_access(write(tmp_path / "config", document), context, environ={})


async def test_a_plain_kubeconfig_gives_server_trust_and_identity(tmp_path: Path) -> None:
    document = config(
        {"certificate-authority-data": b64(b"CA"), "server": "https://example.com/k8s/", "tls-server-name": "other"},
        {"client-certificate-data": b64(b"CERT"), "client-key-data": b64(b"KEY"), "token": "T"},
    )
    assert await load(document, tmp_path) == Access(
        server="https://example.com/k8s",
        ca=b"CA",
        tls_server_name="other",
        certificate=b"CERT",
        key=b"KEY",
        token="T",
    )


async def test_files_are_named_relative_to_the_kubeconfig_and_inline_data_wins(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls/tls.crt", "tls/tls.key", "token"):
        write(tmp_path / name, "x")
    document = config(
        {"certificate-authority": "ca.crt"},
        {
            "client-certificate": "tls/tls.crt",
            "client-key": str(tmp_path / "tls" / "tls.key"),
            "client-key-data": b64(b"KEY"),
            "tokenFile": "token",
            "token": "ignored where there is a file",
        },
    )
    access = await load(document, tmp_path)
    assert (access.ca, access.certificate) == (tmp_path / "ca.crt", tmp_path / "tls" / "tls.crt")
    assert (access.key, access.token) == (b"KEY", tmp_path / "token")


async def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    access = await load(config(user={"token": "S3CRET", "client-key-data": b64(b"S3CRET")}), tmp_path)
    assert "S3CRET" not in repr(access)


async def test_a_context_may_be_chosen_and_brings_its_namespace(tmp_path: Path) -> None:
    document = config(
        contexts=[
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "d", "namespace": "research"}},
        ],
        clusters=[{"name": "c", "cluster": {}}, {"name": "d", "cluster": {"server": "http://127.0.0.1:8001"}}],
    )
    assert await load(document, tmp_path, "other") == Access(server="http://127.0.0.1:8001", namespace="research")


async def test_insecure_access_is_taken_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    access = await load(config({"insecure-skip-tls-verify": True}), tmp_path)
    assert not access.verify
    assert "any server that answers is trusted as the API server" in caplog.text


@pytest.mark.parametrize(
    ("cluster", "environ", "proxy"),
    [
        ({}, {}, None),
        ({"proxy-url": "http://p:1"}, {}, "p:1"),
        ({"proxy-url": "http://p:1"}, {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "*"}, "p:1"),
        ({"server": "https://api.test"}, {"HTTPS_PROXY": "http://q:2"}, "q:2"),
        ({"server": "https://api.test:6443"}, {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "api.test:443"}, "q:2"),
        ({"server": "https://api.test:6443"}, {"HTTPS_PROXY": "http://q:2", "NO_PROXY": ".test"}, None),
        ({"server": "http://api.test"}, {"HTTPS_PROXY": "http://q:2"}, None),
    ],
)
async def test_the_proxy_is_that_of_the_kubeconfig_or_of_the_environment(
    cluster: Json, environ: dict[str, str], proxy: str | None, tmp_path: Path
) -> None:
    """As for kubectl."""
    access = await load_access(write(tmp_path / "config", config(cluster)), environ=environ)
    assert (access.proxy and str(access.proxy)) == proxy


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "login", "apiVersion": "client.authentication.k8s.io/v1"}},
        {"auth-provider": {"name": "oidc"}},
    ],
)
async def test_users_with_a_login_program_get_their_credentials_from_it_later(user: Json, tmp_path: Path) -> None:
    access = await load(config(user=user), tmp_path)
    assert access.plugin == CredentialPlugin(kubeconfig=str(tmp_path / "config"), context="main")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (
            config({"proxy-url": "socks5://proxy"}),
            r"clusters\[c\].cluster.proxy-url: the proxy's address begins with socks5://: Kerf uses proxies at http://",
        ),
        (
            config({"server": "https://h:port"}),
            r"clusters\[c\].cluster.server: 'https://h:port' has no valid host and port",
        ),
        (config(user={"as": "admin"}), r"users\[u\].user.as: Kerf does not support impersonation"),
        (
            config(user={"username": "x", "password": "y"}),
            r"users\[u\].user.username: basic authentication was removed",
        ),
        (config({"server": ""}), r"clusters\[c\].cluster.server: '' is not an http or https address"),
        (config({"server": "ftp://x"}), "'ftp://x' is not an http or https address"),
        (config({"certificate-authority": "gone.crt"}), r"certificate-authority: there is no file .*/gone.crt"),
        (config({"certificate-authority-data": "not base64!"}), "certificate-authority-data: this is not base64"),
        (config(user={"tokenFile": "gone"}), r"users\[u\].user.tokenFile: there is no file"),
        (config(clusters=[]), r"contexts\[main\].cluster: there is no cluster 'c'"),
        (config(users=None), r"contexts\[main\].user: there is no user 'u'"),
        (config(contexts=[]), "no context 'main'; there is none"),
        ({**config(), "current-context": ""}, "no current-context"),
        (config({"server": 7}), r"Expected `str`, got `int` - at `\$.clusters\[0\].cluster.server`"),
        ([], "Expected `object`, got `array`"),
        ({}, "no current-context"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_its_place(document: object, problem: str, tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=problem) as caught:
        await load(document, tmp_path)
    assert str(tmp_path / "config") in str(caught.value)


async def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    document = config({"server": "", "proxy-url": "ftp://x"}, {"as": "y", "tokenFile": "gone"})
    with pytest.raises(AccessError) as caught:
        await load(document, tmp_path)
    assert str(caught.value).count("; ") == 3


async def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("{")
    with pytest.raises(AccessError, match="is not YAML"):
        await load_access(tmp_path / "config")


async def test_a_kubeconfig_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=f"cannot read kubeconfig {tmp_path}/gone: No such file"):
        await load_access(tmp_path / "gone")


# Where it is looked for


def service_account(tmp_path: Path) -> Path:
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    for name in ("token", "ca.crt"):
        (directory / name).write_text(name)
    (directory / "namespace").write_text("kerf\n")
    return directory


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


async def test_in_a_pod_its_service_account_is_used_before_any_file_in_home(tmp_path: Path) -> None:
    directory = service_account(tmp_path)
    other = write(tmp_path / "other", config())
    access = await load_access(None, environ={**IN_POD, "KUBECONFIG": str(other)}, service_account=directory)
    assert access == Access(
        server="https://10.0.0.1:6443", namespace="kerf", ca=directory / "ca.crt", token=directory / "token"
    )


def test_an_ipv6_service_address_is_bracketed(tmp_path: Path) -> None:
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account(tmp_path))
    assert access is not None
    assert access.server == "https://[fd00::1]:443"


async def test_a_pod_without_a_token_is_no_access(tmp_path: Path) -> None:
    other = write(tmp_path / "other", config())
    access = await load_access(None, environ={**IN_POD, "KUBECONFIG": str(other)}, service_account=tmp_path)
    assert access.server == "https://example.com:6443"


async def test_several_kubeconfigs_are_merged_and_the_first_to_name_something_wins(tmp_path: Path) -> None:
    write(tmp_path / "a" / "ca.crt", "x")
    first = write(
        tmp_path / "a" / "config",
        {"current-context": "main", "clusters": config({"certificate-authority": "ca.crt"})["clusters"]},
    )
    second = write(tmp_path / "b" / "config", config({"server": "https://second"}, {"token": "T"}))
    named = os.pathsep.join([str(first), str(tmp_path / "gone"), "", str(second)])
    access = await load_access(None, environ={"KUBECONFIG": named}, service_account=tmp_path)
    assert access == Access(server="https://example.com:6443", ca=tmp_path / "a" / "ca.crt", token="T")


async def test_without_anything_the_error_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(AccessError, match=rf"no --kubeconfig given, not in a pod .* no file {tmp_path}/.kube/config"):
        await load_access(None, environ={}, service_account=tmp_path)
    with pytest.raises(AccessError, match=r"/x or /y \(\$KUBECONFIG\)"):
        await load_access(None, environ={"KUBECONFIG": "/x:/y"}, service_account=tmp_path)


async def test_home_is_looked_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".kube" / "config", config())
    assert (await load_access(None, environ={}, service_account=tmp_path)).server == "https://example.com:6443"


# Login programs


def login_program(tmp_path: Path, status: Json) -> Json:
    """A credential plugin that gives ``status``, and counts its calls in a file."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    path = tmp_path / "login"
    path.write_text(
        f"#!{sys.executable}\nimport pathlib\n"
        f"calls = pathlib.Path({str(tmp_path / 'calls')!r})\n"
        "number = int(calls.read_text()) + 1 if calls.exists() else 1\n"
        "calls.write_text(str(number))\n"
        f"print({json.dumps(answer)!r}.replace('NUMBER', str(number)))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"command": str(path), "apiVersion": "client.authentication.k8s.io/v1"}}
