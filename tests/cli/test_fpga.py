"""``kerf fpga``: shells and images of a cluster, slots, checks of documents and files, what a load would do."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
import pytest
import yaml

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.driver.cli import main
from kerf_dra.driver.controller.structured.fpga_objects import FpgaStatusWriter
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import InvalidError
from kerf_dra.driver.kubeletplugin.backends.slots.packages import compute_digest
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.partitions.geometry import Placement
from tests.controller.test_fpga_status import NOW, slice_of
from tests.fakes.cluster_states import allocate_claims, claim, device_class, node, state
from tests.fakes.dfl.machine import AES_ID, FFT_ID, INTERFACE, DflMachine, build_document, build_gbs
from tests.fakes.dfx import DfxMachine
from tests.fakes.dfx.machine import BASE, FLAT
from tests.fakes.published_slices import fpgas, slices
from tests.fakes.xrt import build_xclbin
from tests.kubeletplugin.backends.slots.machine import SlotsMachineUnderTest
from tools.generate import crds

SHA: Final = "a0" * 32


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["fpga", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def image(**changes: Any) -> dict[str, Any]:
    file = {"file": "aes.gbs", "sha256": SHA, "slots": [[0]]}
    spec = {"function": "aes", "interfaceUUID": INTERFACE, "afuID": AES_ID, "loadSeconds": 0.4, "files": [file]}
    return build_document("FpgaImage", "aes-1", **{**spec, **changes})


def shell(**changes: Any) -> dict[str, Any]:
    return build_document("FpgaShell", "lab", **{"interfaceUUID": INTERFACE, "slots": [{"lut": 1}] * 4, **changes})


async def test_what_administrators_register_is_judged_by_the_server_summed_by_the_controller_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ApiServer()
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="tests") as admin:
            for crd in crds.documents():
                await admin.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
            await admin.apply(FPGA_SHELLS, shell(), field_manager="admin")
            await admin.apply(FPGA_IMAGES, image(), field_manager="admin")
            for wrong in (
                image(loadSeconds=-1),
                image(files=[{"sha256": SHA, "slots": [[0]]}]),
                image(files=[{"url": "http://h/x", "sha256": SHA, "slots": [[0]]}]),
                image(files=[{"file": "../x", "sha256": SHA, "slots": [[0]]}]),
            ):
                with pytest.raises(InvalidError):
                    await admin.apply(FPGA_IMAGES, wrong, field_manager="admin")
            published = [slice_of("node-1", "aes"), slice_of("node-2", refused="aes=WrongDigest")]
            await FpgaStatusWriter(admin, lambda: published, interval_s=1, now=lambda: NOW).write()
            listed = {
                what: await anyio.to_thread.run_sync(run, capsys, what, f"--kubeconfig={kubeconfig}")
                for what in ("images", "shells")
            }
        group.cancel_scope.cancel()
    code, out, _ = listed["images"]
    assert code == 0
    assert [line.split()[:5] for line in out.splitlines()] == [
        ["NAME", "FUNCTION", "VERSION", "FETCHED", "NODES"],
        ["aes-1", "aes", "0", "1", "2"],
    ]
    assert "WrongDigest on node-2" in out
    assert [line.split()[:4] for line in listed["shells"][1].splitlines()][1] == ["lab", INTERFACE, "4", "2"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A shell, an image that is right, and one of another function, with their files."""
    machine = DflMachine.create(tmp_path / "machine")
    (tmp_path / "shell.yaml").write_text(yaml.safe_dump(shell()))
    for name, afu_id in (("aes", AES_ID), ("fft", FFT_ID)):
        document = machine.build_image(name, afu_id, [0, 1])
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "images").symlink_to(machine.images)
    return tmp_path


def test_documents_and_the_files_that_they_name_are_checked_as_a_node_does(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(files / name) for name in ("shell.yaml", "aes.yaml", "fft.yaml")]
    code, out, err = run(capsys, "verify", *given, f"--images={files / 'images'}")
    assert (code, err) == (0, "")
    assert out.count("is valid") == 3
    assert "aes.gbs: as described" in out
    (files / "images/aes.gbs").write_bytes(build_gbs(FFT_ID))
    code, out, err = run(capsys, "verify", *given, f"--images={files / 'images'}")
    assert code == 1
    assert "is another file than the one that was described" in err


def test_an_image_without_its_shell_and_a_field_that_is_wrong_are_said(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "verify", str(files / "aes.yaml"))
    assert (code, "no shell is described" in err) == (1, True)
    (files / "aes.yaml").write_text(yaml.safe_dump(image(checksum=1)))
    code, _, err = run(capsys, "verify", str(files / "shell.yaml"), str(files / "aes.yaml"))
    assert (code, "spec.checksum: unknown field" in err) == (1, True)
    (files / "aes.yaml").write_text("kind: [")
    assert run(capsys, "verify", str(files / "aes.yaml"))[0] == 2


def test_an_image_file_says_what_to_write_into_its_document(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", str(files / "images/aes.gbs"))
    assert code == 0
    document = yaml.safe_load((files / "aes.yaml").read_text())
    for said in (INTERFACE, AES_ID, document["spec"]["files"][0]["sha256"]):
        assert said in out
    (files / "images/aes.gbs").write_bytes(build_gbs(AES_ID, clusters=2))
    code, _, err = run(capsys, "verify", str(files / "images/aes.gbs"))
    assert (code, "2 accelerator clusters" in err) == (1, True)


def test_an_xclbin_file_says_what_to_write_and_is_checked_with_its_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FP-03: the compute units are those of the image's metadata."""
    content = build_xclbin(AES_ID, interface=INTERFACE, signature=bytes(9))
    (tmp_path / "aes.xclbin").write_bytes(content)
    code, out, _ = run(capsys, "verify", str(tmp_path / "aes.xclbin"))
    digest = hashlib.sha256(content).hexdigest()
    assert code == 0
    assert "for xilinx_u250_gen3x16_xdma_shell_4_1, with 2 compute units and 16 GiB, with AMD's signature" in out
    assert all(said in out for said in (f"interfaceUUID: {INTERFACE}", f"afuID: {AES_ID}", f"sha256: {digest}"))
    file = {"file": "aes.xclbin", "sha256": digest, "slots": [[0]]}
    (tmp_path / "aes.yaml").write_text(yaml.safe_dump(image(files=[file])))
    (tmp_path / "shell.yaml").write_text(yaml.safe_dump(shell()))
    given = [str(tmp_path / name) for name in ("shell.yaml", "aes.yaml")]
    code, out, _ = run(capsys, "verify", *given, f"--images={tmp_path}")
    assert (code, "aes.xclbin: as described" in out) == (0, True)
    (tmp_path / "aes.xclbin").write_bytes(content[:-1])
    code, _, err = run(capsys, "verify", str(tmp_path / "aes.xclbin"))
    assert (code, "ends too early" in err) == (1, True)


def test_signatures_are_checked_by_the_keys_that_are_given(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FP-06 (the signature)."""
    pytest.importorskip("cryptography")
    key = files / "release.pem"
    key.write_text(
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAzfKO4nul3qPPnhV8pw+VSfrrEywXUYLsGA0JcMUTeuY=\n"
        "-----END PUBLIC KEY-----\n"
    )
    signature = "x/AJHtDTkOGM+VgRTdLv36NxpccSjwRLrE9G5QzkYdU6UF0cGUIgruJ2lF53AfKtV4z3yCXPuCKDZrGPvMY0CQ=="
    file = {"file": "aes.gbs", "sha256": SHA, "slots": [[0]], "signature": signature}
    (files / "aes.yaml").write_text(yaml.safe_dump(image(version="1.2.0", files=[file])))
    given = [str(files / "shell.yaml"), str(files / "aes.yaml"), f"--key={key}"]
    code, out, _ = run(capsys, "verify", *given)
    assert (code, "its signature is right" in out) == (0, True)
    (files / "aes.yaml").write_text(yaml.safe_dump(image(version="1.2.1", files=[file])))
    code, _, err = run(capsys, "verify", *given)
    assert (code, "was not signed as this by any key" in err) == (1, True)


def write_dump(path: Path) -> Path:
    """A cluster with a card of four slots, of which a claim has two."""
    [card] = fpgas("quad")
    published = slices("node-1", [replace(card, loaded={Placement(3, 1): "zstd"})])
    fft = device_class("fft", 'device.attributes["fpga.kerf.dev"].function == "fft-large"')
    now = state(node("node-1"), published=published, classes=[fft])
    path.write_bytes(encode_dump(allocate_claims(now, claim("big", "fft"))))
    return path


def test_slots_show_what_is_loaded_and_which_claim_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FP-09 (a function of two slots takes both)."""
    dump = write_dump(tmp_path / "cluster.json")
    code, out, _ = run(capsys, "slots", f"--from={dump}", "-o", "json")
    assert code == 0
    found = {row["device"]: (row["loaded"], row["claim"]) for row in json.loads(out)["slots"]}
    held = [device for device, (_, by) in found.items() if by == "default/big"]
    assert len(held) == 2
    assert found["fpga-0-slot-3"][0] == "zstd"
    code, out, _ = run(capsys, "slots", f"--from={dump}")
    assert out.splitlines()[0].split() == ["NODE", "DEVICE", "SHELL", "LUT", "DSP", "LOADED", "CLAIM"]


def test_a_dry_run_says_what_a_load_would_do_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = DflMachine.create(tmp_path / "machine")
    machine.describe()
    config = tmp_path / "dfl.yaml"
    config.write_text(
        f"descriptionFolder: {machine.descriptions}\nimageFolder: {machine.images}\nsystemRoot: {machine.folder}\n"
    )
    backend = f"--backend=dfl={config}"
    code, out, err = run(capsys, "load", "--dry-run", backend, "fpga-0-aes-at-1")
    assert (code, err) == (0, "")
    assert "function: aes" in out
    assert "it is loaded already: no; a load takes 0.4 s" in out
    machine.set_afu_id(1, AES_ID)
    assert "it is loaded already: yes" in run(capsys, "load", "--dry-run", backend, "fpga-0-aes-at-1")[1]
    machine.use(1)
    code, _, err = run(capsys, "load", "--dry-run", backend, "fpga-0-aes-at-1")
    assert (code, "in use outside of Kerf" in err) == (1, True)
    (machine.images / "aes.gbs").unlink()
    code, _, err = run(capsys, "load", "--dry-run", backend, "fpga-0-aes-at-1")
    assert (code, "refused images: aes=Missing" in err) == (1, True)
    assert machine.calls() == []
    assert run(capsys, "load", backend, "fpga-0-aes-at-1")[0] == 2


def test_directories_of_dfx_mgr_say_what_to_write_into_their_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = DfxMachine.create(tmp_path)
    base = machine.firmware / BASE
    code, out, err = run(capsys, "verify", str(base), str(base / "aes-1/aes-1_slot1"))
    assert (code, err) == (0, "")
    assert f"a base design with 3 slots\n  interfaceUUID: {machine.interface()}\n" in out
    [file] = machine.files("aes", [1])
    assert "the package aes-1 for slot 1, with the devices: 20101000000.aes-1\n" in out
    assert f"  sha256: {file['sha256']}\n" in out


def test_directories_that_documents_name_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = DfxMachine.create(tmp_path)
    machine.describe()
    arguments = ("verify", *map(str, machine.descriptions.iterdir()), "--images", str(machine.firmware))
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert f"{BASE}/aes-2/aes-2_slot2: as described" in out
    (machine.firmware / BASE / "aes-2/aes-2_slot2/accel.json").write_text("{}")
    code, _, err = run(capsys, *arguments)
    assert (code, "aes-2_slot2 has other files" in err) == (1, True)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "neither a base design (shell.json) nor the directory NAME/NAME_slotN"),
        ("odd", "shell_type is 'RPU'; possible are PL_DFX, PL_FLAT, XRT_FLAT"),
        (f"{BASE}/aes-1/aes-1_slot1", "accel.json cannot be read"),
    ],
)
def test_a_directory_that_dfx_mgr_could_not_use_is_told(
    path: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = DfxMachine.create(tmp_path)
    machine.add_base("odd", shell_type="RPU")
    (machine.firmware / BASE / "aes-1/aes-1_slot1/accel.json").write_text("[")
    code, _, err = run(capsys, "verify", str(machine.firmware / path))
    assert (code, message in err) == (1, True)


def test_a_dry_run_on_a_board_of_dfx_mgr_loads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = SlotsMachineUnderTest(tmp_path / "machine")
    config = tmp_path / "slots.yaml"
    config.write_bytes(msgspec.json.encode(machine.document))
    code, out, err = run(capsys, "load", "--dry-run", f"--backend=slots={config}", "fpga-0-aes-at-1")
    assert (code, err) == (0, "")
    assert "function: aes" in out
    assert machine.hardware.calls() == []


def test_the_directory_of_a_flat_base_design_is_shell_and_image_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = DfxMachine.create(tmp_path)
    machine.add_layouts()
    code, out, err = run(capsys, "verify", str(machine.firmware / FLAT))
    assert (code, err) == (0, "")
    assert "a flat base design, which is the package of its function\n" in out
    assert f"  interfaceUUID: {machine.interface(FLAT)}\n  sha256: {compute_digest(machine.firmware / FLAT)}\n" in out


def test_a_dry_run_for_another_layout_says_what_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = SlotsMachineUnderTest(tmp_path / "machine", has_layouts=True)
    config = tmp_path / "slots.yaml"
    config.write_bytes(msgspec.json.encode(machine.document))
    arguments = ("load", "--dry-run", f"--backend=slots={config}")
    code, out, err = run(capsys, *arguments, "fpga-0-sobel-at-1-of-halves")
    assert (code, err) == (0, "")
    assert "a load takes 40.4 s\n  the card has its first layout now, which is replaced" in out
    machine.daemon.load("aes-half-0")
    assert "is replaced" not in run(capsys, *arguments, "fpga-0-sobel-at-1-of-halves")[1]
    assert "the card has its layout halves now" in run(capsys, *arguments, "fpga-0-aes-at-1")[1]
    machine.hardware.use(0)
    code, _, err = run(capsys, *arguments, "fpga-0-vadd-at-0-of-flat")
    assert (code, err) == (1, "kerf: fpga-0-vadd-at-0-of-flat: slot-0-of-halves at 0 is in use outside of Kerf\n")
    assert machine.hardware.calls() == ["load aes-half-0 0"]


def test_slots_of_all_layouts_are_shown_with_the_claims_that_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = SlotsMachineUnderTest(tmp_path / "machine", has_layouts=True)
    [card] = machine.open_backend().discover()
    half = device_class("half", 'device.attributes["fpga.kerf.dev"].function == "sobel"')
    now = state(node("node-1"), published=slices("node-1", [card]), classes=[half])
    dump = tmp_path / "cluster.json"
    dump.write_bytes(encode_dump(allocate_claims(now, claim("one", "half"))))
    code, out, _ = run(capsys, "slots", f"--from={dump}", "-o", "json")
    assert code == 0
    assert {row["device"]: row["claim"] for row in json.loads(out)["slots"]} == {
        **{f"fpga-0-slot-{slot}": "-" for slot in range(3)},
        "fpga-0-slot-0-of-halves": "default/one",
        "fpga-0-slot-1-of-halves": "-",
    }
