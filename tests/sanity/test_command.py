"""``kerf sanity`` as a program, beside the driver that it tests."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import anyio
import pytest

from kerf_dra.api.core.v1 import PODS
from kerf_dra.api.wire import Kind
from tests.sanity.test_rows import toy_driver
from tests.sanity.toy_driver import DRIVER, NODE, ToyDriver

CLAIMS = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine}
spec: {devices: {requests: [{name: left, exactly: {deviceClassName: toys}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: ours}
spec: {spec: {devices: {requests: [{name: right, exactly: {deviceClassName: toys, count: 1}}]}}}
"""


def command_of(toy: ToyDriver, *arguments: str) -> Sequence[str]:
    return [
        *(sys.executable, "-m", "kerf_dra.driver.cli", "sanity", f"--driver={DRIVER}", f"--node={NODE}"),
        *(f"--registration-socket={toy.registration_socket}", f"--cdi-dir={toy.cdi_folder}"),
        *(f"--kubeconfig={toy.root / 'kubeconfig'}", *arguments),
    ]


async def kerf_sanity(toy: ToyDriver, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return await anyio.run_process(command_of(toy, *arguments), check=False)


@pytest.mark.parametrize(
    ("fault", "rows", "code", "last"),
    [
        ("", ("PREPARE-1", "CDI-2"), 0, "2 passed"),
        ("UNPREPARE-1", ("UNPREPARE-1", "CDI-2"), 1, "1 passed, 1 failed that a driver must meet"),
        ("PREPARE-7", ("PREPARE-7",), 0, "0 passed, 1 failed that a driver may meet"),
        ("SLICE-1", ("SLICE-3",), 0, "0 passed, 1 not tried"),
    ],
)
async def test_the_exit_code_says_whether_a_driver_meets_what_every_driver_must(
    fault: str, rows: Sequence[str], code: int, last: str
) -> None:
    async with toy_driver(fault) as (toy, _):
        done = await kerf_sanity(toy, *(f"--row={row}" for row in rows))
    assert (done.returncode, done.stderr) == (code, b"")
    assert done.stdout.decode().splitlines()[-1] == f"{DRIVER}: {last}"


async def test_a_waived_row_does_not_fail_a_run() -> None:
    async with toy_driver("UNPREPARE-1") as (toy, _):
        done = await kerf_sanity(toy, "--row=UNPREPARE-1", "--waive=UNPREPARE-1=fixed in the next release")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[-2:] == [
        "        waived: fixed in the next release",
        f"{DRIVER}: 0 passed, 1 waived",
    ]


async def test_a_run_after_one_that_was_killed_removes_what_that_has_left() -> None:
    async with toy_driver() as (toy, _):
        async with await anyio.open_process(command_of(toy, "--row=PREPARE-8")) as killed:
            await toy.was_prepared.wait()
            killed.kill()
        assert (await toy.client.list(toy.api.resource.resource_claims)).items
        done = await kerf_sanity(toy, "--row=REG-1")
        assert done.returncode == 0
        assert toy.prepared == {}
        kinds: Sequence[Kind[Any]] = (toy.api.resource.resource_claims, toy.api.resource.device_classes, PODS)
        for kind in kinds:
            assert (await toy.client.list(kind)).items == ()


async def test_results_are_written_for_programs(tmp_path: Path) -> None:
    async with toy_driver() as (toy, _):
        done = await kerf_sanity(toy, "--row=REG-1", "--output=json", f"--junit={tmp_path / 'junit.xml'}")
    assert [row["outcome"] for row in json.loads(done.stdout)["rows"]] == ["passed"]
    assert ET.parse(tmp_path / "junit.xml").getroot().get("tests") == "1"


async def test_copies_of_the_claims_of_a_file_are_tried(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(CLAIMS)
    async with toy_driver() as (toy, _):
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        value = {"metadata": {"name": "toys"}, "spec": {"selectors": [selector]}}
        await toy.client.apply(toy.api.resource.device_classes, value, field_manager="administrator")
        done = await kerf_sanity(toy, "--row=PREPARE-1", "--row=PREPARE-12", f"--claims={file}")
        assert (await toy.client.list(toy.api.resource.resource_claims)).items == ()
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[-1] == f"{DRIVER}: 2 passed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLAIMS, "document 1: spec.devices.requests[0].exactly.deviceClassName: the cluster has no DeviceClass toys"),
        (CLAIMS.replace("count", "number"), "document 2: spec.spec.devices.requests[0].exactly.number: unknown field"),
        ("a: [", "is not YAML"),
        ("- 1", "document 1: is a list, not an object"),
    ],
)
async def test_a_file_without_usable_claims_is_bad_input(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    async with toy_driver() as (toy, _):
        done = await kerf_sanity(toy, f"--claims={file}")
        assert toy.calls == []
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"{file}: {message}" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--row=REG-99",), 2, "there is no row REG-99"),
        (("--waive=REG-99=late",), 2, "there is no row REG-99"),
        (("--waive=REG-1",), 2, "REG-1 has no reason: ID=REASON"),
        (("--registration-socket=/nowhere", "--row=REG-1"), 1, "/nowhere is no socket"),
        (("--registration-socket=/a-{instance}-reg.sock",), 2, "the command after -- lacks it"),
        (("--", "driver", "--pod-uid={instance}"), 2, "the path lacks {instance}, which the command has"),
        (("--holder='a",), 2, "--holder: is no command: No closing quotation"),
        (("--holder=/nowhere/program", "--row=UNPREPARE-7"), 1, "/nowhere/program cannot be started: No such file"),
        (("--holder=true", "--row=UNPREPARE-7"), 1, "true prints no line once it uses the device"),
    ],
)
async def test_what_is_wrong_with_the_command_is_said(arguments: Sequence[str], code: int, message: str) -> None:
    async with toy_driver() as (toy, _):
        done = await kerf_sanity(toy, *arguments)
    assert done.returncode == code
    assert message in (done.stdout + done.stderr).decode()
