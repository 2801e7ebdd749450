"""Certificates of a throw-away authority, made by ``openssl``, for TLS tests."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_NAME = "kerf-extender.kerf-system.svc"


class Certificates(NamedTuple):
    """Folders with ``tls.crt``, ``tls.key`` and ``ca.crt`` each."""

    server: Path
    client: Path


def make_certificates(folder: Path) -> Certificates:
    """Make an authority in ``folder``, and with it the certificates of a server and of a client."""
    folder.mkdir()
    _openssl(folder, "req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca", "-days", "2")
    return Certificates(_make(folder, "server"), _make(folder, "client"))


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _make(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    (folder / "extensions").write_text(f"subjectAltName=DNS:{_NAME}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _openssl(folder, "req", *_KEY, "-keyout", f"{name}/tls.key", "-out", "request", "-subj", f"/CN={name}")
    _openssl(
        folder, "x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", f"{name}/tls.crt", "-days", "1", "-extfile", "extensions",
    )  # fmt: skip
    (made / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
    return made


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
