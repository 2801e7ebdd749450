"""The host's device nodes."""

import os
from pathlib import Path

import pytest

from kerf_dra.cdi import Host, HostDeviceError, HostNode


def test_a_character_device_is_what_the_kernel_says() -> None:
    status = Path("/dev/null").stat()
    assert Host().node("/dev/null") == HostNode(type="c", major=1, minor=3, file_mode=status.st_mode & 0o7777)


def test_a_fifo_is_a_node_too_and_the_root_can_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev" / "pipe", 0o600)
    assert Host(tmp_path).node("/dev/pipe") == HostNode(type="p", major=0, minor=0, file_mode=0o600)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/link", "host-not-device"),
        ("/file", "host-not-device"),
        ("/", "host-not-device"),
        ("/none", "host-missing"),
        ("/file/below", "host-missing"),
        ("/nul\0", "host-missing"),
    ],
)
def test_what_is_no_device_node_says_why(tmp_path: Path, path: str, code: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/dev/null")
    with pytest.raises(HostDeviceError) as caught:
        Host(tmp_path).node(path)
    assert caught.value.code == code
    assert repr(path) in str(caught.value)
