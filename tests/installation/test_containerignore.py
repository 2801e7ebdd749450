"""A container engine gets the files that the image is made of, and no others."""

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.image.layers import SOURCE_FILES, SOURCES
from tools.realcluster import requirements
from tools.supply_chain.lock import ROOT

NAME: Final = "localhost/kerf-context:test"
FOLDERS: Final = (*SOURCES, "deploy/image", "tools/image", "tools/supply_chain")
FILES: Final = (*SOURCE_FILES, "requirements-dev.lock", "tools/__init__.py")
"""What deploy/image/Containerfile copies, builds from and runs."""


def needed() -> Iterator[str]:
    yield from FILES
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT).as_posix()


def test_an_engine_gets_what_the_image_is_made_of_and_nothing_else(tmp_path: Path) -> None:
    requirements.ensure()
    file, image = tmp_path / "Containerfile", tmp_path / "image.tar"
    file.write_text("FROM scratch\nCOPY . /\n")
    build = ["podman", "build", "--quiet", "--isolation=chroot", f"--file={file}", f"--tag={NAME}", str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    try:
        subprocess.run(["podman", "image", "save", f"--output={image}", NAME], check=True, capture_output=True)
    finally:
        subprocess.run(["podman", "rmi", "--force", NAME], check=False, capture_output=True)
    with tarfile.open(image) as archive:
        (layer,) = (one for one in archive.getmembers() if one.name.endswith(".tar") and one.isfile())
        content = archive.extractfile(layer)
        assert content is not None
        with tarfile.open(fileobj=content) as files:
            found = {member.name for member in files if member.isfile()}
    assert found == {*needed()}
