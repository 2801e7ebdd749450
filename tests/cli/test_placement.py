"""``kerf placement config``: the scheduler's part of the extender's configuration, from what the cluster has."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.output import EXIT_BAD_INPUT, EXIT_NO_ANSWER

SPACES = "/api/v1/namespaces"
PEM = {key: base64.b64encode(f"{key} of the client".encode()).decode() for key in ("ca.crt", "tls.crt", "tls.key")}


def service(address: str, namespace: str = "kerf-system") -> dict[str, Any]:
    metadata = {"name": "kerf-extender", "namespace": namespace, "uid": "s", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": address}}


def secret(data: Mapping[str, str], namespace: str = "kerf-system") -> dict[str, Any]:
    metadata = {"name": "kerf-extender-client", "namespace": namespace, "uid": "c", "resourceVersion": "8"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.fixture
def objects() -> dict[str, Any]:
    """What the API server has, by path; a test changes it."""
    return {
        f"{SPACES}/kerf-system/services/kerf-extender": service("10.96.4.7"),
        f"{SPACES}/kerf-system/secrets/kerf-extender-client": secret(PEM),
        f"{SPACES}/mine/services/kerf-extender": service("fd00::7", "mine"),
        f"{SPACES}/mine/secrets/kerf-extender-client": secret(PEM, "mine"),
    }


@pytest.fixture
def kubeconfig(objects: dict[str, Any], tmp_path: Path) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            _, plural, name = path.rsplit("/", 2)
            found = objects.get(path)
            details = {"name": name, "kind": plural}
            absent = {"apiVersion": "v1", "kind": "Status", "code": 404, "reason": "NotFound", "details": details}
            answer = found or absent
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  (the library's name)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    path = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    path.write_text(yaml.safe_dump({**document, "current-context": "c"}))
    yield str(path)
    server.shutdown()
    thread.join()
    server.server_close()


def run(*arguments: str) -> int:
    return main(["placement", "config", *arguments])


@pytest.mark.parametrize(
    ("options", "url", "name"),
    [
        ([], "https://10.96.4.7:443", "kerf-extender.kerf-system.svc"),
        (["-n", "mine"], "https://[fd00::7]:443", "kerf-extender.mine.svc"),
        (["--url", "https://extender.lab:8443"], "https://extender.lab:8443", "kerf-extender.kerf-system.svc"),
    ],
)
def test_the_fragment_has_the_address_and_the_certificates_of_the_cluster(
    kubeconfig: str, capsys: pytest.CaptureFixture[str], options: list[str], url: str, name: str
) -> None:
    assert run("--kubeconfig", kubeconfig, *options) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# ")
    (extender,) = yaml.safe_load(printed)["extenders"]
    assert extender == {
        "urlPrefix": url,
        "prioritizeVerb": "prioritize",
        "weight": 10,
        "enableHTTPS": True,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "200ms",
        "tlsConfig": {
            "serverName": name,
            "caData": PEM["ca.crt"],
            "certData": PEM["tls.crt"],
            "keyData": PEM["tls.key"],
        },
    }


@pytest.mark.parametrize(
    ("path", "replacement", "said"),
    [
        ("services/kerf-extender", None, "there is no Service kerf-extender in the namespace kerf-system"),
        ("secrets/kerf-extender-client", None, "there is no Secret kerf-extender-client in the namespace kerf-system"),
        ("services/kerf-extender", service(""), "has no address: name one with --url"),
        ("services/kerf-extender", service("None"), "has no address: name one with --url"),
        ("secrets/kerf-extender-client", secret({"tls.crt": "eA=="}), "has no ca.crt and no tls.key"),
    ],
)
def test_what_the_cluster_lacks_is_named(
    objects: dict[str, Any],
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    path: str,
    replacement: dict[str, Any] | None,
    said: str,
) -> None:
    objects[f"{SPACES}/kerf-system/{path}"] = replacement
    assert run("--kubeconfig", kubeconfig) == EXIT_NO_ANSWER
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True), err


@pytest.mark.parametrize(
    "arguments", [["--extender-address", ":8443"], ["--extender-certificates", "/etc/kerf-extender"]]
)
def test_the_controller_needs_the_extenders_address_and_its_certificates(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["controller", *arguments]) == EXIT_BAD_INPUT
    assert "--extender-address and --extender-certificates need one another" in capsys.readouterr().err
