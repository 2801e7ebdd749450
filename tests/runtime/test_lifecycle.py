"""A real process each, because signals and exit codes are about processes."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, gc, logging, ssl, sys
from asyncio import sslproto
import anyio
from kerf_dra.api.errors import KerfError
from kerf_dra.driver.runtime import lifecycle

logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")

async def returns():
    print("ready", flush=True)

async def counts_modules():
    print(gc.get_freeze_count() > len(sys.modules), flush=True)

async def makes_tls_connections():
    loop, context = asyncio.get_running_loop(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connection = sslproto.SSLProtocol(loop, asyncio.Protocol(), context, waiter=None)
    print(len(connection.get_buffer(-1)), flush=True)

def resident_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

async def frees_large_buffers():
    kept, before = [], resident_kib()
    for _ in range(4):
        buffer = b"x" * 2**24
        kept.append(b"y" * 10_000)
        del buffer
    print(resident_kib() - before < 2**13, flush=True)

async def fails():
    print("ready", flush=True)
    async with anyio.create_task_group():
        raise KerfError("no kubelet here")

async def breaks():
    print("ready", flush=True)
    raise ValueError("a defect")

async def finds_no_folder():
    print("ready", flush=True)
    open("/nonexistent/checkpoint.db")

async def serves():
    try:
        print("ready", flush=True)
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
            print("cleaned up", flush=True)

async def hangs_at_the_end():
    try:
        print("ready", flush=True)
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            print("cleaning up", flush=True)
            await anyio.sleep_forever()

sys.exit(lifecycle.run(globals()[sys.argv[1]]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(program: Path, main: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(program), main], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def output_of(program: Path, main: str) -> str:
    """What a main that ends by itself prints."""
    command = [sys.executable, str(program), main]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_a_main_that_returns_exits_with_0(program: Path) -> None:
    with start(program, "returns") as process:
        assert (process.communicate(timeout=120)[1], process.returncode) == ("", 0)


def test_a_tls_connection_reads_into_a_buffer_of_64_kib(program: Path) -> None:
    assert output_of(program, "makes_tls_connections") == "65536\n"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what they like")
def test_a_large_buffer_that_is_freed_is_no_longer_resident(program: Path) -> None:
    """After a list of slices the controller kept 40 MB that it did not use, or none, by chance."""
    assert output_of(program, "frees_large_buffers") == "True\n"


def test_an_error_for_people_is_logged_as_its_message_and_exits_with_1(program: Path) -> None:
    with start(program, "fails") as process:
        assert process.communicate(timeout=120)[1] == "CRITICAL no kubelet here\n"
        assert process.returncode == 1


def test_a_file_that_cannot_be_used_is_named_without_a_traceback(program: Path) -> None:
    with start(program, "finds_no_folder") as process:
        assert process.communicate(timeout=20)[1] == "CRITICAL /nonexistent/checkpoint.db: No such file or directory\n"
        assert process.returncode == 1


def test_a_defect_is_logged_with_its_traceback_and_exits_with_1(program: Path) -> None:
    with start(program, "breaks") as process:
        errors = process.communicate(timeout=120)[1]
        assert errors.startswith("CRITICAL unexpected error\nTraceback")
        assert errors.endswith("ValueError: a defect\n")
        assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_main_waits_for_its_clean_up_and_exits_with_0(program: Path, number: signal.Signals) -> None:
    with start(program, "serves") as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=120)
        assert (output, errors, process.returncode) == ("cleaned up\n", f"INFO {number.name}: stopping\n", 0)


def test_a_second_signal_ends_the_process_at_once(program: Path) -> None:
    with start(program, "hangs_at_the_end") as process:
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "cleaning up\n"
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGINT


def test_what_was_imported_is_left_alone_by_the_collector(program: Path) -> None:
    assert output_of(program, "counts_modules") == "True\n"
