"""``python -m cdi``."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.cdi import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Kind, Mount, NetDevice, Spec, Store
from kerf_dra.cdi.cli import main
from kerf_dra.cdi.description import describe_device
from kerf_dra.cdi.document.document_tree import MAX_BYTES

GPU = Kind(vendor="acme.io", class_name="gpu")


def device(name: str, **edits: Any) -> Device:
    return Device(name=name, container_edits=ContainerEdits(**edits or {"env": (f"GPU_{name}=1",)}))


@pytest.fixture
def low(tmp_path: Path) -> Path:
    Store(tmp_path / "low").write("gpu", Spec(kind=GPU, devices=(device("a"), device("b"))))
    return tmp_path / "low"


@pytest.fixture
def high(tmp_path: Path) -> Path:
    nic = Kind(vendor="zeta.io", class_name="nic")
    Store(tmp_path / "high").write("gpu", Spec(kind=GPU, devices=(device("b"),)))
    Store(tmp_path / "high").write("nic", Spec(kind=nic, devices=(device("n"),)))
    return tmp_path / "high"


Cdi = Callable[..., tuple[int, str]]


@pytest.fixture
def cdi(low: Path, high: Path, capsys: pytest.CaptureFixture[str]) -> Cdi:
    def run(*arguments: object, **options: Any) -> tuple[int, str]:
        status = main(["-d", str(low), "--spec-dir", str(high), *map(str, arguments)], **options)
        return status, capsys.readouterr().out

    return run


LISTS = [
    ("devices", ["acme.io/gpu=a", "acme.io/gpu=b", "zeta.io/nic=n"]),
    ("vendors", ["acme.io", "zeta.io"]),
    ("classes", ["gpu", "nic"]),
]


@pytest.mark.parametrize(("command", "names"), LISTS)
def test_lists_come_as_text_json_and_yaml(cdi: Cdi, command: str, names: list[str]) -> None:
    assert cdi(command) == (0, "\n".join(names) + "\n")
    assert json.loads(cdi(command, "--output", "json")[1]) == names
    assert yaml.safe_load(cdi("-o", "yaml", command)[1]) == names


def test_specs_can_be_those_of_some_vendors(cdi: Cdi, low: Path, high: Path) -> None:
    status, out = cdi("specs")
    assert status == 0
    assert out.splitlines() == [
        f"{low}/gpu.json: acme.io/gpu, 2 devices",
        f"{high}/gpu.json: acme.io/gpu, 1 device",
        f"{high}/nic.json: zeta.io/nic, 1 device",
    ]
    (only,) = json.loads(cdi("specs", "zeta.io", "-o", "json")[1])
    assert only["path"] == f"{high}/nic.json"
    assert only["spec"]["kind"] == "zeta.io/nic"


def test_directories_are_listed_with_their_priority(low: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["-d", str(low), "-d", str(tmp_path / "none"), "dirs"]) == 0
    assert capsys.readouterr().out == f"{low} priority 0\n{tmp_path}/none priority 1, not there\n"


def test_the_usual_directories_are_the_default(capsys: Any) -> None:
    assert main(["dirs", "-o", "json"]) == 0
    assert [row["path"] for row in json.loads(capsys.readouterr().out)] == ["/etc/cdi", "/var/run/cdi"]


def test_files_that_cannot_be_used_are_noted_beside_the_output(cdi: Cdi, low: Path, capsys: Any) -> None:
    (low / "bad.json").write_text("{")
    assert main(["-d", str(low), "devices"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "acme.io/gpu=a\nacme.io/gpu=b\n"
    assert captured.err.startswith(f"cdi: {low}/bad.json: error: line ")


def test_right_files_are_ok(cdi: Cdi, low: Path, high: Path) -> None:
    assert cdi("validate") == (0, f"{low}/gpu.json: ok\n{high}/gpu.json: ok\n{high}/nic.json: ok\n")
    assert cdi("validate", low / "gpu.json") == (0, f"{low}/gpu.json: ok\n")


def test_every_mistake_of_every_file_is_said(cdi: Cdi, low: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("cdiVersion: 0.3.0\nkind: acme.io\ndevices:\n- name: a\n  containerEdits: {env: [A]}\n")
    status, out = cdi("validate", wrong, tmp_path / "none.json", low / "gpu.json")
    assert status == 1
    assert [line.rpartition("[")[2] for line in out.splitlines()[:3]] == ["vendor-name]", "env-entry]", "unreadable]"]
    assert out.splitlines()[3:] == [f"{low}/gpu.json: ok"]
    judged = json.loads(cdi("validate", "-o", "json", wrong)[1])
    assert judged["files"][0]["valid"] is False
    assert judged["files"][0]["findings"][1] == {
        "code": "env-entry",
        "path": "devices[0].containerEdits.env[0]",
        "message": "'A' is not NAME=VALUE",
        "severity": "error",
        "line": 5,
    }


def test_strict_holds_files_to_what_we_would_write(cdi: Cdi, tmp_path: Path) -> None:
    doubtful = tmp_path / "doubtful.json"
    doubtful.write_text(
        '{"cdiVersion": "0.3.0", "kind": "acme.io/gpu", "devices": [{"name": "a", "containerEdits":'
        ' {"mounts": [{"hostPath": "/h", "containerPath": "/c"}]}}]}'
    )
    assert cdi("validate", doubtful)[0] == 0
    status, out = cdi("validate", "--strict", doubtful)
    assert status == 1
    assert "[mount-not-bind]" in out


def test_conflicts_and_unreadable_directories_are_mistakes_too(low: Path, tmp_path: Path, capsys: Any) -> None:
    Store(low).write("other", Spec(kind=GPU, devices=(device("a"),)))
    (tmp_path / "file").touch()
    assert main(["-d", str(low), "-d", str(tmp_path / "file"), "validate"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path}/file: error: cannot be read: Not a directory"
    assert lines[1].startswith(f"acme.io/gpu=a: error: {low}/gpu.json, {low}/other.json define it with equal priority")


def test_a_document_can_come_from_standard_input(cdi: Cdi, low: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((low / "gpu.json").read_bytes())))
    assert cdi("validate", "-") == (0, "-: ok\n")


@pytest.fixture
def oci(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"ociVersion": "1.2.0", "linux": {"devices": [{"path": "acme.io/gpu=b"}, {"path": "/x"}]}})
    )
    return path


def test_injecting_prints_the_new_spec(cdi: Cdi, oci: Path, low: Path) -> None:
    status, out = cdi("inject", oci, "acme.io/gpu=*", "zeta.io/nic=n")
    assert status == 0
    assert json.loads(out)["process"]["env"] == ["GPU_a=1", "GPU_b=1", "GPU_n=1"]
    assert yaml.safe_load(cdi("inject", oci, "zeta.io/nic=n", "-o", "yaml")[1])["process"]["env"] == ["GPU_n=1"]


def test_what_cannot_be_injected_has_a_reason(cdi: Cdi, oci: Path, capsys: Any) -> None:
    assert main(["-d", "/nowhere", "inject", str(oci), "acme.io/gpu=a"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "acme.io/gpu=a: no file defines devices of kind acme.io/gpu" in captured.err


@pytest.mark.parametrize("content", [None, "{", "[]", "[" * 100_000, "\xff"])
def test_what_is_no_oci_spec_is_wrong_usage(cdi: Cdi, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "oci.json"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    for arguments in (("inject", path, "acme.io/gpu=a"), ("resolve", path)):
        assert cdi(*arguments) == (2, "")


def test_resolving_replaces_the_names_among_the_devices(cdi: Cdi, oci: Path) -> None:
    status, out = cdi("resolve", oci)
    assert status == 0
    resolved = json.loads(out)
    assert resolved["linux"]["devices"] == [{"path": "/x"}]
    assert resolved["process"]["env"] == ["GPU_b=1"]


@pytest.mark.parametrize("path", ["/dev/zero", "-", "FILE"])
def test_what_has_no_end_is_no_oci_spec(
    cdi: Cdi, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" " * (MAX_BYTES + 1))))
    (tmp_path / "FILE").write_bytes(b" " * (MAX_BYTES + 1))
    status, _ = cdi("resolve", str(tmp_path / path) if path == "FILE" else path)
    assert status == 2


@pytest.mark.parametrize("content", ["{}", '{"linux": null}', '{"linux": {"devices": [5, {}, {"path": 5}]}}'])
def test_without_names_there_is_nothing_to_resolve(cdi: Cdi, tmp_path: Path, content: str) -> None:
    path = tmp_path / "oci.json"
    path.write_text(content)
    status, out = cdi("resolve", path)
    assert (status, json.loads(out)) == (0, json.loads(content))


def test_an_oci_spec_can_come_from_standard_input(cdi: Cdi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"ociVersion": "1.2.0"}')))
    assert json.loads(cdi("inject", "-", "acme.io/gpu=a")[1])["process"]["env"] == ["GPU_a=1"]


def test_watching_says_what_comes_and_goes(cdi: Cdi, low: Path) -> None:
    def actions() -> Iterator[object]:
        yield Store(low).write("more", Spec(kind=GPU, devices=(device("b"), device("c"))))
        yield (low / "bad.json").write_text("{")
        yield Store(low).remove("gpu")

    happening = actions()
    status, out = cdi("watch", "--changes", "3", "--interval", "0.1", sleep=lambda _: next(happening))
    assert status == 0
    assert [line.partition(": ")[0] for line in out.splitlines()] == [
        "+ acme.io/gpu=a",
        "+ acme.io/gpu=b",
        "+ zeta.io/nic=n",
        "+ acme.io/gpu=c",
        "- acme.io/gpu=b",
        f"! {low}/gpu.json",
        f"! {low}/more.json",
        f"! {low}/bad.json",
        "+ acme.io/gpu=b",
        "- acme.io/gpu=a",
    ]


def test_watching_ends_when_interrupted(cdi: Cdi) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    status, out = cdi("watch", "-o", "json", sleep=interrupted)
    assert status == 0
    assert json.loads(out)["added"] == ["acme.io/gpu=a", "acme.io/gpu=b", "zeta.io/nic=n"]


def test_a_device_is_explained_in_words(tmp_path: Path, capsys: Any) -> None:
    edits = ContainerEdits(
        env=("A=b",),
        device_nodes=(
            DeviceNode(path="/dev/a", host_path="/dev/b", permissions="rw", file_mode=0o600, uid=5),
            DeviceNode(path="/dev/c", type="c", major=195, minor=1),
            DeviceNode(path="/dev/p", type="p"),
        ),
        net_devices=(NetDevice(host_interface_name="ens1", name="net0"),),
        mounts=(
            Mount(host_path="/h", container_path="/c", options=("ro", "bind")),
            Mount(host_path="tmpfs", container_path="/t", type="tmpfs"),
        ),
        hooks=(Hook(hook_name="createContainer", path="/bin/h", args=("h", "-v"), timeout=5),),
        intel_rdt=IntelRdt(clos_id="gold", schemata=("L3:0=f", "MB:0=50")),
        additional_gids=(0, 44),
    )
    shared = ContainerEdits(intel_rdt=IntelRdt())
    spec = Spec(kind=GPU, devices=(Device(name="a", container_edits=edits),), container_edits=shared, version="1.1.0")
    Store(tmp_path).write("gpu", spec)
    assert main(["-d", str(tmp_path), "explain", "acme.io/gpu=a"]) == 0
    edited, readers = "devices[0].containerEdits", "containerd 2.2.1, CRI-O 1.35, Docker Engine 29.2"
    features = f"{edited}.netDevices (network devices); {edited}.intelRdt.schemata (Intel RDT schemata)"
    assert capsys.readouterr().out.splitlines() == [
        f"acme.io/gpu=a is defined in {tmp_path}/gpu.json.",
        f"It needs CDI 1.1.0, because of {features}.",
        f"Its file declares CDI 1.1.0, which is read from these releases on: {readers}.",
        "A container that requests it",
        "  - has A set to 'b' in its environment",
        "  - has the device node /dev/a (as the host's /dev/b, owned by user 5, mode 0600) with rw access",
        "  - has the device node /dev/c (c 195:1, whether the host has it or not) with rwm access",
        "  - has the device node /dev/p (p 0:0, whether the host has it or not) with rwm access",
        "  - has the host's network interface ens1, as net0",
        "  - has the host's /h at /c (ro, bind)",
        "  - has the host's tmpfs at /t (tmpfs)",
        "  - has /bin/h -v run in the container's namespaces, before its root directory is entered, for at most 5 s",
        "  - is put under Intel RDT, in class gold with L3:0=f; MB:0=50",
        "  - runs with the supplementary group 44",
        "and, as with every device of this file,",
        "  - is put under Intel RDT, in a class of its own",
    ]


def test_the_explanation_names_what_is_overridden_and_doubtful(cdi: Cdi, low: Path, high: Path) -> None:
    text = (high / "gpu.json").read_text().replace("0.3.0", "0.6.0")
    (high / "gpu.json").write_text(text)
    lines = cdi("explain", "acme.io/gpu=b")[1].splitlines()
    assert lines[1] == f"{low}/gpu.json defines it too, in a directory of lower priority, and is overridden."
    assert "It needs CDI 0.3.0; no version is lower." in lines
    assert lines[-2] == "About its file:"
    assert "[version-too-high]" in lines[-1]
    data = json.loads(cdi("explain", "acme.io/gpu=b", "-o", "json")[1])
    assert data["explanation"] == lines
    assert data["minimumVersion"] == "0.3.0"


def test_a_device_that_is_missing_is_explained_too(cdi: Cdi, low: Path) -> None:
    status, out = cdi("explain", "acme.io/gpu=z")
    assert status == 1
    assert out.startswith("acme.io/gpu=z is not available: ")
    assert json.loads(cdi("explain", "nonsense", "-o", "json")[1])["missing"].startswith("'nonsense': ")


def test_what_is_not_there_cannot_be_explained_in_code() -> None:
    from kerf_dra.cdi import Catalog

    with pytest.raises(KeyError):
        list(describe_device(Catalog(files=(), directory_errors={}), "acme.io/gpu=a"))


def test_later_semantics_can_be_asked_for(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.json").write_text(
        '{"cdiVersion": "0.3.0", "kind": "a/gpu", "devices": [{"name": "a", "containerEdits": {"env": ["A=b"]}}]}'
    )
    assert main(["-d", str(tmp_path), "--semantics", "main", "devices"]) == 0
    assert capsys.readouterr().out == "a/gpu=a\n"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["inject"], ["-o", "xml", "devices"]])
def test_wrong_usage_is_2(arguments: list[str], capsys: Any) -> None:
    assert main(arguments) == 2
    assert "usage: cdi" in capsys.readouterr().err


def test_help_is_0(capsys: Any) -> None:
    assert main(["--help"]) == 0
    assert main(["validate", "--help"]) == 0


def test_a_reader_that_has_had_enough_is_no_error(low: Path) -> None:
    command = [sys.executable, "-m", "cdi", "-d", str(low), "devices"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_runs_as_a_module(low: Path) -> None:
    command = [sys.executable, "-m", "cdi", "-d", str(low), "devices"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "acme.io/gpu=a\nacme.io/gpu=b\n"
