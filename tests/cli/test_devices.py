"""``kerf devices``: what this node's backends see, and what is on the cards, one table for each family."""

import json
import re
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from kerf_dra.driver.cli import main
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.backends.intel.backend import IntelBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.backend import SimulatedBackend
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.maintenance.work_file import FILE_NAME, WorkFile, WorkRecord
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.runtime.boot import BOOT_ID
from tests.fakes.pci import add_pci_device
from tests.fakes.xrt import NEEDS_COMPILER, XrtMachine
from tests.fakes.xrt.machine import AES_ID
from tests.kubeletplugin.records import device, record

UUID = r"[A-Z]+-[0-9a-f-]{36}"


@pytest.fixture
def backend(tmp_path: Path) -> str:
    path = tmp_path / "cards.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: h100-80gb-sxm}, {kind: fpga, shell: quad}]\n")
    return f"--backend=simulated={path}"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the plugins' records, which is not that of this machine."""
    monkeypatch.setenv("KERF_DEVICES_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["devices", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_each_family_has_a_table_with_its_own_sizes_within_80_columns(
    capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    code, out, _ = run(capsys, backend)
    assert code == 0
    gpus, fpgas = out.split("\n\n")
    assert gpus.splitlines()[0] == "gpu.kerf.dev, pool this-node/gpu"
    assert gpus.splitlines()[3] == "gpu-0  [ . . . . . . . . ]  . = free"
    assert gpus.splitlines()[4].split() == ["DEVICE", "CUT", "PLACEMENT", "MEMORY", "COMPUTESLICES"]
    rows = {row[0]: row[1:] for row in map(str.split, (gpus + fpgas).splitlines())}
    assert rows["gpu-0-3g-40gb-at-4"][:2] == ["3g.40gb", "4:4"]
    assert rows["gpu-0"][:2] == ["whole", "0:8"]
    assert fpgas.splitlines()[4].split() == ["DEVICE", "CUT", "PLACEMENT", "SLOTS", "LUT", "DSP"]
    assert rows["fpga-0-aes-gcm-at-1"][:3] == ["aes-gcm", "1:1", "1"]
    assert max(map(len, out.splitlines())) <= 80


def test_one_family_can_be_chosen(capsys: pytest.CaptureFixture[str], backend: str) -> None:
    _, out, _ = run(capsys, backend, "--family=fpga", "-o", "json")
    (family,) = json.loads(out)["families"]
    assert (family["name"], family["driver"], len(family["cards"])) == ("fpga", "fpga.kerf.dev", 1)
    assert family["pool"]["name"] == "this-node/fpga"


@NEEDS_COMPILER
def test_alveo_cards_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """FP-03."""
    machine = XrtMachine.create(tmp_path / "machine")
    machine.describe()
    machine.set_loaded(0, AES_ID)
    machine.use(1)
    path = tmp_path / "xrt.yaml"
    fields = {"descriptionFolder": machine.descriptions, "imageFolder": machine.images, "systemRoot": machine.folder}
    path.write_text("".join(f"{field}: {folder}\n" for field, folder in fields.items()) + f"xrtFolder: {machine.xrt}\n")
    code, out, _ = run(capsys, f"--backend=xrt={path}")
    assert code == 0
    rows = {row[0]: row[1:] for row in map(str.split, out.splitlines()) if row}
    assert rows["fpga-0-aes-at-0"][:3] == ["aes", "0:1", "1"]
    assert rows["fpga-1"][0] == "whole"
    assert "0000:3b:00.1" in out
    assert "region" in out, "somebody uses the second card"


def test_a_family_without_cards_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: a30}]\n")
    code, out, _ = run(capsys, f"--backend=simulated={path}")
    assert code == 0
    assert out.endswith("\n\nfpga.kerf.dev: no cards\n")


def test_of_devices_that_nodes_find_by_discovery_it_says_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--backend=discovered")
    assert code == 0
    assert out.splitlines() == [
        "shared.kerf.dev: no cards",
        "  what nodes find by discovery is in the cluster: kubectl get discovereddevices",
    ]


def test_an_unknown_backend_is_an_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--backend=simulatd")
    assert code == 1
    assert (
        "no backend 'simulatd'; installed are: dfl, discovered, intel, nvidia, nvidia-fake, simulated, slots, xrt; "
        "did you mean 'simulated'?" in err
    )


def write_hardware(folder: Path, **states: object) -> None:
    """Make the state of simulated cards that others have changed, each by the name of its card."""
    (folder / "hardware").mkdir(exist_ok=True)
    for name, state in states.items():
        (folder / "hardware" / f"{name.replace('_', '-')}.json").write_text(json.dumps(state))


def test_what_is_on_the_cards_and_what_their_modes_forbid_is_shown_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, backend: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    instance = {"id": 1, "profile": "3g.40gb", "placement": [0, 4], "mig_uuid": "MIG-1", "in_use": True}
    unused = {"id": 9, "profile": "1g.10gb", "placement": [4, 1]}
    gpu = {"model": "h100-80gb-sxm", "mig": True, "switch": "NeedsReset", "instances": [instance, unused]}
    write_hardware(tmp_path, gpu_0=gpu, fpga_0={"shell": "quad", "in_use": [[1, 2]]})
    code, out, err = run(capsys, backend)
    gpus, fpgas = (table.splitlines() for table in out.split("\n\n"))
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"gpu-0: h100-80gb-sxm, {UUID}, 0000:00:00\.0", gpus[2])
    assert re.fullmatch(rf"fpga-0: quad, {UUID}, \S+", fpgas[2])
    assert gpus[3:6] == [
        "gpu-0: on the card now: 3g.40gb at 0, in use",
        "gpu-0: on the card now: 1g.10gb at 4, not in use",
        "gpu-0: not available whole: MIG mode is on and off only after a reset",
    ]
    assert gpus[6].startswith("gpu-0  [ a a a a b . . . ]  a = 3g.40gb at 0  b = 1g.10gb at 4"), "no record has them"
    assert fpgas[3].startswith("fpga-0: on the card now: ")
    assert fpgas[3].endswith(" at 1, in use")
    assert max(map(len, [*gpus, *fpgas])) <= 80
    assert json.loads((tmp_path / "hardware" / "gpu-0.json").read_text()) == gpu, "nothing was changed"


def test_what_is_on_a_card_is_shown_with_the_claim_that_the_records_name(
    capsys: pytest.CaptureFixture[str], backend: str, tmp_path: Path, state: Path
) -> None:
    ours = {"id": 1, "profile": "3g.40gb", "placement": [0, 4], "mig_uuid": "MIG-1", "in_use": True}
    theirs = {"id": 9, "profile": "1g.10gb", "placement": [4, 1], "mig_uuid": "MIG-2"}
    write_hardware(tmp_path, gpu_0={"model": "h100-80gb-sxm", "mig": True, "instances": [ours, theirs]})
    (card,) = json.loads(run(capsys, backend, "--family=gpu", "-o", "json")[1])["families"][0]["cards"]
    boot_id = BOOT_ID.read_text().strip()
    (state / "gpu.kerf.dev").mkdir(parents=True)
    claim = record("training", device("gpu-0-3g-40gb-at-0", card=card["uuid"], profile="3g.40gb", size=4))
    alike = record("alike", device("gpu-0-1g-10gb-at-4", card=card["uuid"], profile="1g.10gb", start=4))
    with open_checkpoint(state / "gpu.kerf.dev", boot_id=boot_id) as checkpoint:
        for one, before in ((claim, []), (alike, ["gi-9"])):
            checkpoint.put(replace(one, boot_id=boot_id))
            checkpoint.journal(one.claim.uid, one.devices[0].share, boot_id).write(before=before)
    code, out, err = run(capsys, backend, "--family=gpu")
    assert (code, err) == (0, "")
    assert out.splitlines()[3:5] == [
        "gpu-0: on the card now: 3g.40gb at 0, in use, of claim default/training",
        "gpu-0: on the card now: 1g.10gb at 4, not in use, in use outside of Kerf",
    ]
    assert out.splitlines()[5].startswith("gpu-0  [ a a a a % . . . ]  a = default/training  . = free")
    assert "% = held by another program (1g.10gb at 4)" in out
    (family,) = json.loads(run(capsys, backend, "--family=gpu", "-o", "json")[1])["families"]
    assert family["holders"] == {card["uuid"]: {"gi-1": "default/training", "gi-9": ""}}


def test_what_a_container_has_by_a_limit_is_shown_with_its_resource(
    capsys: pytest.CaptureFixture[str], backend: str, tmp_path: Path, state: Path
) -> None:
    ours = {"id": 1, "profile": "1g.10gb", "placement": [0, 1], "mig_uuid": "MIG-1", "in_use": True}
    write_hardware(tmp_path, gpu_0={"model": "h100-80gb-sxm", "mig": True, "instances": [ours]})
    (card,) = json.loads(run(capsys, backend, "--family=gpu", "-o", "json")[1])["families"][0]["cards"]
    boot_id = BOOT_ID.read_text().strip()
    (state / "gpu.kerf.dev").mkdir(parents=True)
    one = record("x", device("gpu-0-1g-10gb-at-0", card=card["uuid"], profile="1g.10gb", size=1))
    with open_checkpoint(state / "gpu.kerf.dev", boot_id=boot_id) as checkpoint:
        checkpoint.put(replace(one, boot_id=boot_id, resource="kerf.dev/gpu-small"))
        checkpoint.journal(one.claim.uid, one.devices[0].share, boot_id).write(before=[])
    out = run(capsys, backend, "--family=gpu")[1]
    assert out.splitlines()[3] == ("gpu-0: on the card now: 1g.10gb at 0, in use, of extended resource")
    assert out.splitlines()[4] == "  kerf.dev/gpu-small"
    assert out.splitlines()[5].startswith("gpu-0  [ + . . . . . . . ]  . = free")
    assert "+ = reserved for an extended resource (kerf.dev/gpu-small)" in " ".join(out.split())


def test_records_that_cannot_be_read_are_named_and_the_cards_are_shown(
    capsys: pytest.CaptureFixture[str], backend: str, state: Path
) -> None:
    (state / "gpu.kerf.dev").mkdir(parents=True)
    (state / "gpu.kerf.dev" / "checkpoint.db").write_bytes(b"")
    code, out, err = run(capsys, backend, "--family=gpu")
    assert (code, out.splitlines()[0]) == (1, "gpu.kerf.dev, pool this-node/gpu")
    assert err.startswith(f"kerf: {state}/gpu.kerf.dev/checkpoint.db: unreadable: it is empty; ")


def test_what_the_node_does_with_a_card_in_maintenance_is_shown(
    capsys: pytest.CaptureFixture[str], backend: str, state: Path
) -> None:
    (family, _) = json.loads(run(capsys, backend, "-o", "json")[1])["families"]
    uuid = family["cards"][0]["uuid"]
    record = WorkRecord(
        uid="u", generation=1, card_uuid=uuid, backend="simulated", act="Reset", stage="Failed", message="ECC error"
    )
    WorkFile(state / "gpu.kerf.dev" / FILE_NAME).put(record)
    code, out, _ = run(capsys, backend)
    assert code == 0
    assert "gpu-0: in maintenance: Reset, Failed: ECC error" in out.splitlines()
    (family, _) = json.loads(run(capsys, backend, "-o", "json")[1])["families"]
    assert family["maintenances"] == {uuid: "Reset, Failed: ECC error"}
    (state / "gpu.kerf.dev" / FILE_NAME).write_text("{")
    code, _, err = run(capsys, backend)
    assert (code, "maintenances.json cannot be read" in err) == (1, True)


def test_what_is_wrong_with_a_card_is_shown(
    capsys: pytest.CaptureFixture[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(self: SimulatedBackend, timeout_s: float) -> list[HealthChange]:
        del timeout_s
        (card, *_) = self.discover()
        ill = HealthState.UNHEALTHY
        return [HealthChange(card_uuid=card.uuid, partition=None, state=ill, reason="rows are to be remapped")]

    monkeypatch.setattr(SimulatedBackend, "wait_for_events", wait)
    _, out, _ = run(capsys, backend, "--family=gpu")
    assert out.splitlines()[3] == "gpu-0: unhealthy: rows are to be remapped"


@pytest.mark.parametrize(("profile", "where"), [("1g.10gb", "1g.10gb at 1"), (None, "at 1")])
def test_what_is_wrong_with_a_part_of_a_card_is_shown_with_its_place(
    profile: str | None, where: str, capsys: pytest.CaptureFixture[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(self: SimulatedBackend, timeout_s: float) -> list[HealthChange]:
        del timeout_s
        (card, *_) = self.discover()
        part = Partition(kind=card.kind, card_uuid=card.uuid, profile=profile, placement=Placement(1, 1))
        return [HealthChange(card_uuid=card.uuid, partition=part, state=HealthState.UNHEALTHY, reason="worn out")]

    monkeypatch.setattr(SimulatedBackend, "wait_for_events", wait)
    _, out, _ = run(capsys, backend, "--family=gpu")
    assert out.splitlines()[3] == f"gpu-0: unhealthy ({where}): worn out"


def test_a_long_reason_is_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, backend: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    write_hardware(tmp_path, gpu_0={"model": "h100-80gb-sxm", "mig": True, "switch": "NeedsReset"})
    _, out, _ = run(capsys, backend, "--family=gpu")
    assert out.splitlines()[4:6] == ["gpu-0: not available whole: MIG mode is", "  on and off only after a reset"]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_program_gets_the_surveys_in_the_document(
    capsys: pytest.CaptureFixture[str], backend: str, tmp_path: Path, form: str
) -> None:
    instance = {"id": 1, "profile": "3g.40gb", "placement": [0, 4], "mig_uuid": "MIG-1"}
    write_hardware(tmp_path, gpu_0={"model": "h100-80gb-sxm", "mig": True, "instances": [instance]})
    _, out, _ = run(capsys, backend, "--family=gpu", "-o", form)
    (family,) = yaml.safe_load(out)["families"]
    (survey,) = family["surveys"]
    assert (survey["card_uuid"], survey["no_whole"], survey["no_partitions"]) == (family["cards"][0]["uuid"], "", "")
    assert survey["partitions"] == [
        {
            "id": "gi-1",
            "profile": "3g.40gb",
            "placement": {"units": [0, 1, 2, 3], "layout": ""},
            "uuid": "MIG-1",
            "in_use": False,
            "is_static": False,
        }
    ]


def test_a_card_that_cannot_be_surveyed_is_named_and_the_others_are_shown(
    capsys: pytest.CaptureFixture[str], backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = SimulatedBackend.survey
    closed: list[str] = []

    def fail_for_gpus(self: SimulatedBackend, card_uuid: str) -> object:
        if card_uuid.startswith("GPU"):
            raise OSError("the driver does not answer")
        return survey(self, card_uuid)

    monkeypatch.setattr(SimulatedBackend, "survey", fail_for_gpus)
    monkeypatch.setattr(SimulatedBackend, "close", lambda self: closed.append(self.name))
    code, out, err = run(capsys, backend, "-o", "json")
    gpu, fpga = json.loads(out)["families"]
    assert (code, err) == (1, "kerf: card gpu-0 cannot be surveyed: OSError('the driver does not answer')\n")
    assert (len(gpu["surveys"]), len(gpu["cards"]), len(fpga["surveys"])) == (0, 1, 1)
    assert closed == ["simulated", "simulated"]


def test_a_backend_that_raises_anything_when_it_is_opened_fails_its_family_alone(
    capsys: pytest.CaptureFixture[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def fail_once(self: SimulatedBackend) -> None:
        calls.append(self.name)
        if len(calls) == 1:
            raise ZeroDivisionError("oops")

    monkeypatch.setattr(SimulatedBackend, "open", fail_once)
    code, out, err = run(capsys, backend)
    assert (code, err) == (1, "kerf: family gpu: ZeroDivisionError('oops')\n")
    assert out.startswith("fpga.kerf.dev, pool this-node/fpga\n")


def test_a_backend_that_brings_files_to_the_host_brings_none_when_somebody_looks(
    capsys: pytest.CaptureFixture[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That for NVIDIA cards replaced the hook that containers run by the one that the caller's machine had."""
    calls: list[str] = []
    opened = SimulatedBackend.open

    def note_and_open(self: SimulatedBackend) -> None:
        calls.append("open")
        opened(self)

    monkeypatch.setattr(SimulatedBackend, "look_only", lambda _: calls.append("look only"), raising=False)
    monkeypatch.setattr(SimulatedBackend, "open", note_and_open)
    assert run(capsys, backend, "--family=gpu")[0] == 0
    assert calls == ["look only", "open"]


@pytest.fixture
def two_gpus(tmp_path: Path) -> str:
    """The backend of a machine with two cards of Intel, one of which is for a virtual machine and one has no driver."""
    for address, driver in {"0000:03:00.0": "vfio-pci", "0000:04:00.0": ""}.items():
        add_pci_device(tmp_path / "machine", address, (0x8086, 0x56A0), 0x0300, driver)
    (tmp_path / "machine/sys/class/drm").mkdir(parents=True)
    path = tmp_path / "intel.yaml"
    path.write_text(f"systemRoot: {tmp_path / 'machine'}\n")
    return f"--backend=intel={path}"


def test_cards_on_the_bus_that_the_backend_does_not_list_are_named_with_driver_and_step(
    capsys: pytest.CaptureFixture[str], two_gpus: str
) -> None:
    code, out, err = run(capsys, two_gpus)
    said = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "gpu-intel.kerf.dev: no cards not listed: 0000:03:00.0 (8086:56a0): vfio-pci has it" in said
    assert "not listed: 0000:04:00.0 (8086:56a0): no driver has it; load its driver (modprobe xe, or i915)" in said
    document = json.loads(run(capsys, two_gpus, "-o", "json")[1])
    assert [(card["driver"], card["is_expected"]) for card in document["families"][0]["unlisted"]] == [
        ("vfio-pci", True),
        ("", False),
    ]


def test_they_are_named_too_where_the_backend_cannot_be_opened(
    capsys: pytest.CaptureFixture[str], two_gpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: IntelBackend) -> None:
        raise OSError("no driver is loaded")

    monkeypatch.setattr(IntelBackend, "discover", fail)
    code, out, err = run(capsys, two_gpus)
    assert (code, out) == (1, "\n")
    assert "kerf: family gpu-intel: OSError('no driver is loaded')\n" in err
    assert "kerf: 0000:04:00.0 (8086:56a0): no driver has it; load its driver" in err


def test_cards_that_are_kept_out_are_named_with_the_claims_that_have_some_of_them(
    capsys: pytest.CaptureFixture[str], state: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: a30, count: 3}]\n")
    choice = f"--backend=simulated={path}"
    document = json.loads(run(capsys, choice, "--family=gpu", "-o", "json")[1])["families"][0]
    first, second, third = (card["uuid"] for card in document["cards"])
    (state / "gpu.kerf.dev").mkdir(parents=True)
    with open_checkpoint(state / "gpu.kerf.dev", boot_id=BOOT_ID.read_text().strip()) as checkpoint:
        checkpoint.put(record("training", device(card=second)))
    excluded = [f"--exclude-card=simulated={card}" for card in (first, second.upper(), "GPU-never")]
    code, out, err = run(capsys, choice, "--family=gpu", *excluded)
    said = " ".join(out.split())
    assert (code, err) == (0, "kerf: simulated=GPU-never is included or excluded, and there is no such card\n")
    assert f"kept out: gpu-0 ({first}" in said
    assert f"{second.upper()} is excluded; in use until it ends: default/training" in said
    assert "1 card," in said
    assert not re.search(r"^gpu-[01]-", out, re.MULTILINE)
    family = json.loads(run(capsys, choice, "--family=gpu", *excluded, "-o", "json")[1])["families"][0]
    assert [card["uuid"] for card in family["cards"]] == [third]
    assert [(each["uuid"], each["holders"]) for each in family["kept_out"]] == [
        (first, []),
        (second, ["default/training"]),
    ]


@pytest.mark.parametrize("card", ["simulated=0", "simulated=gpu-0", "0000:3b:00.0", "simulated=0000:3b:00"])
def test_what_names_no_card_is_bad_input(capsys: pytest.CaptureFixture[str], backend: str, card: str) -> None:
    code, _, err = run(capsys, backend, f"--exclude-card={card}")
    assert code == 2
    assert "Invalid value for '--exclude-card'" in err


def test_a_card_on_the_bus_that_is_kept_out_needs_no_driver_and_is_no_unknown_one(
    capsys: pytest.CaptureFixture[str], two_gpus: str
) -> None:
    """An administrator has excluded it, and bound it to another driver."""
    code, out, err = run(capsys, two_gpus, "--exclude-card=intel=04:00.0", "-o", "json")
    assert (code, err) == (0, "")
    assert [card["is_expected"] for card in json.loads(out)["families"][0]["unlisted"]] == [True, True]
    out = run(capsys, two_gpus, "--include-card=intel=03:00.0", "-o", "json")[1]
    assert [card["is_expected"] for card in json.loads(out)["families"][0]["unlisted"]] == [True, True]
    out = run(capsys, two_gpus, "--include-card=intel=INTEL-a", "-o", "json")[1]
    assert [card["is_expected"] for card in json.loads(out)["families"][0]["unlisted"]] == [True, False]


def test_cards_are_kept_out_by_the_environment_too(
    capsys: pytest.CaptureFixture[str], two_gpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERF_DEVICES_EXCLUDE_CARDS", "intel=GPU-a intel=GPU-b")
    err = run(capsys, two_gpus)[2]
    assert [line.split()[1] for line in err.splitlines()] == ["intel=GPU-a", "intel=GPU-b"]
