"""The two descriptions of the image say the same, and an archive has what they say."""

import csv
import hashlib
import json
import re
import shlex
import shutil
import tarfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from kerf_dra.driver.kubeletplugin.backends.xrt.config import XrtConfig
from tests.oracle.xrt.packages import PACKAGES
from tools.image import description, installed_wheel
from tools.image.archive import write_archive
from tools.supply_chain.lock import ROOT, read_lock

CONTAINERFILE = (ROOT / "deploy/image/Containerfile").read_text()
Instruction = tuple[str, str]


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Containerfile, with continued lines joined."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line]


def stages(text: str) -> dict[str, list[Instruction]]:
    """The instructions of each stage by its name; the last one has none."""
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []  # of what stands before the first stage
    for name, rest in instructions(text):
        if name == "FROM":
            current = found.setdefault(rest.partition(" AS ")[2], [])
        else:
            current.append((name, rest))
    return found


STAGES = stages(CONTAINERFILE)
FINAL = STAGES[""]


def one(name: str) -> str:
    (found,) = (rest for instruction, rest in FINAL if instruction == name)
    return found


def installed(stage: list[Instruction]) -> set[str]:
    """Debian's packages that a stage installs."""
    (command,) = (rest for name, rest in stage if name == "RUN" and "apt-get install" in rest)
    words = command.partition("apt-get install")[2].partition("&&")[0].split()
    return {word for word in words if not word.startswith("--")}


def test_both_descriptions_have_one_entry_point_user_environment_and_labels() -> None:
    labels = dict(word.split("=", 1) for word in shlex.split(one("LABEL")))
    assert {
        "Entrypoint": json.loads(one("ENTRYPOINT")),
        "User": one("USER"),
        "WorkingDir": one("WORKDIR"),
        "Env": [one("ENV")],
        "Labels": labels,
    } == description.configuration()


def test_both_descriptions_have_the_same_packages() -> None:
    assert installed(FINAL) == {*description.DEBIAN_PACKAGES}
    assert installed(STAGES["build"]) == {*description.DEBIAN_PACKAGES, f"{description.PYTHON}-venv"}
    (command,) = (rest for name, rest in STAGES["build"] if name == "RUN" and "--only-binary" in rest)
    assert tuple(re.findall(r"-r (\S+)", command)) == description.LOCKS
    assert "--require-hashes" in command


def test_both_leave_out_what_imitates_a_cluster_or_hardware_unless_it_is_wanted() -> None:
    commands = [rest for name, rest in STAGES["build"] if name == "RUN"]
    (remove,) = (place for place, command in enumerate(commands) if f"-m {installed_wheel.__name__}" in command)
    assert commands[remove].endswith(f" /image/{description.SITE_PACKAGES}")
    assert "${SIMULATED:+--with-simulated}" in commands[remove]
    assert ("ARG", "SIMULATED") in STAGES["build"]
    assert "compileall" in commands[remove - 1], "RECORD has the byte code, too"
    assert "--without-simulated" in commands[remove + 1], "so says the bill of materials"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two installed packages, as pip leaves them, compiled."""
    files = {
        "kerf_dra/__init__.py": "",
        "kerf_dra/driver/cli/why.py": "why",
        "kerf_dra/driver/cli/__pycache__/why.cpython-311.pyc": "code",
        "kerf_dra-0.1.0.dist-info/METADATA": "Name: kerf-dra",
        "kerf_dra-0.1.0.dist-info/entry_points.txt": "[console_scripts]",
        "kerf_dra-0.1.0.dist-info/RECORD": (
            "../../bin/kerf,sha256=a,1\nbin/kerf,sha256=a,1\nkerf_dra/__init__.py,sha256=a,1\n"
            '"kerf_dra/driver/demo/a,b.py",sha256=a,1\nkerf_dra-0.1.0.dist-info/RECORD,,\n'
        ),
        "other/__init__.py": "",
        "other-1.dist-info/RECORD": "other/__init__.py,sha256=a,0\n",
        **{f"{folder}/{name}": "" for folder in description.IMITATIONS for name in ("a,b.py", "__pycache__/a.pyc")},
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def recorded(site: Path) -> dict[str, tuple[str, str]]:
    with (site / "kerf_dra-0.1.0.dist-info/RECORD").open(newline="") as file:
        return {name: (digest, size) for name, digest, size in csv.reader(file)}


@pytest.mark.parametrize("options", [[], ["--with-simulated"]])
def test_the_record_of_kerf_has_every_file_that_is_installed_with_its_hash(site: Path, options: list[str]) -> None:
    """Scanners and pip read it; a file that is only listed would be a damaged installation to them."""
    installed_wheel.main([str(site), *options])
    there = {
        path.relative_to(site).as_posix(): path.read_bytes()
        for folder in ("kerf_dra", "kerf_dra-0.1.0.dist-info")
        for path in (site / folder).rglob("*")
        if path.is_file() and path.name != "RECORD"
    }
    record = "kerf_dra-0.1.0.dist-info/RECORD"
    assert recorded(site) == {record: ("", "")} | {
        name: (f"sha256={urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')}", str(len(content)))
        for name, content in there.items()
    }
    assert [(site / folder).exists() for folder in description.IMITATIONS] == [bool(options)] * len(
        description.IMITATIONS
    )
    assert (site / "other-1.dist-info/RECORD").read_text() == "other/__init__.py,sha256=a,0\n"


def test_a_folder_that_was_renamed_is_an_error_and_does_not_stay(site: Path) -> None:
    shutil.rmtree(site / description.IMITATIONS[0])
    with pytest.raises(FileNotFoundError):
        installed_wheel.finish_installation(site)


@pytest.mark.parametrize(
    "path", [description.SITE_PACKAGES, description.PROGRAM, description.CDI_HOOK, description.SBOM]
)
def test_both_descriptions_have_the_same_paths(path: str) -> None:
    assert f"/image/{path}" in CONTAINERFILE
    assert [rest for name, rest in FINAL if name == "COPY"] == ["--from=build /image /"]


def list_bases(containerfile: str) -> set[str]:
    return {*re.findall(r"^FROM (\S+)", containerfile, re.MULTILINE)}


def test_neither_names_a_registry() -> None:
    assert list_bases(CONTAINERFILE) == {"${BASE}", "${GO_BASE}"}


def test_the_image_with_xrt_is_kerfs_with_what_the_backend_looks_for() -> None:
    text = (ROOT / "deploy/image/xrt.Containerfile").read_text()
    assert list_bases(text) == {"${BASE}", "${KERF}"}
    assert ("ARG", f"KERF={description.NAME}") in instructions(text)
    found = stages(text)
    assert installed(found["xrt"]) == {"libxrt1"} < {*PACKAGES}, "what `make oracle` tries loads with"
    (made,) = (rest for name, rest in found["xrt"] if name == "RUN" and "ln -s" in rest)
    assert made.endswith(f"ln -s /usr/lib/*-linux-gnu /image{XrtConfig().xrt_folder}/lib")
    assert found[""] == [("COPY", "--from=xrt /image /")], "it starts as Kerf's does"


def test_the_image_of_kerf_sanity_is_kerfs_with_that_program_and_the_user_of_the_sockets() -> None:
    text = (ROOT / "deploy/image/sanity.Containerfile").read_text()
    assert list_bases(text) == {"${KERF}"}
    assert ("ARG", f"KERF={description.NAME}") in instructions(text)
    made = description.configuration(is_sanity=True)
    assert stages(text)[""] == [("USER", made["User"]), ("ENTRYPOINT", json.dumps(made["Entrypoint"]))]
    assert made["Entrypoint"][1:] == ["sanity"]
    assert {key: value for key, value in made.items() if key not in {"User", "Entrypoint"}} == {
        key: value for key, value in description.configuration().items() if key not in {"User", "Entrypoint"}
    }


@pytest.mark.parametrize(("lock", "packages"), [("nvidia", 1), ("fpga", 3)])
def test_the_packages_for_hardware_are_those_that_are_tested(lock: str, packages: int) -> None:
    found = read_lock(ROOT / f"deploy/image/{lock}.lock")
    assert len(found) == packages
    assert {*found} <= {*read_lock(ROOT / "requirements-dev.lock")}, "run `make lock`"


def test_the_program_starts_without_a_shell_and_imports_nothing_of_where_it_runs() -> None:
    first = (ROOT / description.PROGRAM_SOURCE).read_text().splitlines()[0]
    assert first == f"#!/usr/bin/{description.PYTHON} -I"


def test_all_parts_of_an_archive_are_found_by_their_digests(tmp_path: Path) -> None:
    layers = []
    for number in range(2):
        layers.append(tmp_path / f"{number}.tar")
        layers[-1].write_bytes(bytes([number]) * 10_000)
    write_archive("kerf:7", tmp_path / "archive", layers, description.configuration())
    with tarfile.open(tmp_path / "archive") as tar:
        found = {name: read(tar, name) for name in tar.getnames()}

    def blob(entry: Any) -> bytes:
        kind, _, digest = entry["digest"].partition(":")
        content = found[f"blobs/{kind}/{digest}"]
        assert (hashlib.new(kind, content).hexdigest(), len(content)) == (digest, entry["size"])
        return content

    (entry,) = json.loads(found["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "kerf:7"
    manifest = json.loads(blob(entry))
    configuration = json.loads(blob(manifest["config"]))
    assert configuration["config"] == description.configuration()
    assert [blob(layer) for layer in manifest["layers"]] == [layer.read_bytes() for layer in layers]
    assert configuration["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]


def read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()
