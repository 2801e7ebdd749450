"""A run of the guest ends in any case, with a sentence; its first files are an archive that the kernel unpacks."""

from pathlib import Path

import pytest

from tests.kernel_dfl.guest import find_kernel, pack_archive, run_guest, write_command
from tests.kernel_dfl.machine import list_card_parameters
from tests.kernel_dfl.packages import NoKernelError, find_loader, unpack_packages

ENDED = "kerf-init: the command ended with 0\n"


@pytest.mark.parametrize(
    ("script", "limit_s", "fault"),
    [
        (f"printf '{ENDED}' >console; echo line >results", 60, ""),
        ("echo booting >console; exec sleep 600", 0.5, "was still running after 0.5 s and was ended"),
        ("echo 'kernel panic' >console", 60, "ended before its command did"),
        ("echo 'kerf-init: the command ended with 1' >console", 60, "the command failed"),
        ("echo 'qemu: no such device' >&2; exit 1", 60, "qemu: no such device"),
        ("echo 'kerf-init: /modules/39-dfl-pci.ko: Exec format error' >console", 60, "dfl-pci.ko: Exec format error"),
    ],
    ids=["done", "hangs", "panics", "fails", "no machine", "no module"],
)
def test_a_guest_ends_with_what_it_said(tmp_path: Path, script: str, limit_s: float, fault: str) -> None:
    run = run_guest(["sh", "-c", f"cd {tmp_path}; {script}"], tmp_path, limit_s)
    assert fault in run.fault
    assert bool(fault) == bool(run.fault)
    assert run.results == ("" if fault else "line\n")


def test_the_archive_has_each_file_and_folder_at_a_multiple_of_four_bytes() -> None:
    archive = pack_archive({"init": b"abc", "modules/10-9p.ko": b"defgh"})
    found = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        mode, size, length = (int(archive[at + start : at + start + 8], 16) for start in (14, 54, 94))
        name = archive[at + 110 : at + 110 + length - 1].decode()
        begin = (at + 110 + length + 3) // 4 * 4
        if name == "TRAILER!!!":
            break
        found[name] = (oct(mode), archive[begin : begin + size])
        at = (begin + size + 3) // 4 * 4
    assert found == {
        "modules": ("0o40755", b""),
        "init": ("0o100755", b"abc"),
        "modules/10-9p.ko": ("0o100755", b"defgh"),
    }


def test_the_command_is_written_as_the_first_program_reads_it() -> None:
    assert write_command(Path("/checkout"), {"A": "1"}, ["python", "-m", "x"]) == b"/checkout\nA=1\n\npython\n-m\nx"


def test_the_cards_have_the_functions_of_the_images() -> None:
    parameters = dict(word.split("=") for word in list_card_parameters().split())
    assert [len(parameters[name].split(",")) for name in ("ids_high", "ids_low")] == [3, 3]
    assert parameters["first"] == "2"


def test_without_debian_the_error_says_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoKernelError, match="servers of Debian 12, which have qemu-system-x86"):
        unpack_packages(tmp_path / "cache")


def test_packages_without_a_kernel_or_a_library_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoKernelError, match="has no kernel: remove"):
        find_kernel(tmp_path)
    with pytest.raises(NoKernelError, match="has no C library: remove"):
        find_loader(tmp_path)
