"""Secrets in the address of a server, as the embedded API server's kubeconfig has one: no message shows them."""

from pathlib import Path

import msgspec
import pytest
import yaml

from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.options import cluster
from tests.attack.kinds import cases

SECRET = "hunter2canary"


class ServerAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address in a kubeconfig, with a port at which nothing listens."""

    server: str
    shows: str
    """What messages show of it."""


@pytest.mark.parametrize(
    "address", cases("test_server_addresses.py::test_no_message_has_more_of_it_than_host_and_port", ServerAddress)
)
def test_no_message_has_more_of_it_than_host_and_port(
    address: ServerAddress, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    async def note(what: str) -> None:
        said.append(what)

    monkeypatch.setattr(cluster, "report_when_slow", note)  # it speaks after two seconds
    document = {
        "clusters": [{"name": "c", "cluster": {"server": address.server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert main(["frag", f"--kubeconfig={tmp_path / 'config'}"]) == 3
    output = "".join(capsys.readouterr()) + "".join(said)
    assert SECRET not in output
    assert address.shows in output
