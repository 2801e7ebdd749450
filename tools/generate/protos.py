"""Generates the protobuf modules of ``api/_generated`` from the ``api.proto`` beside them.

``python -m tools.generate.protos`` writes them in place; a test generates them into another folder and compares.
Messages only: methods are rows of ``kerf_dra.api.dra`` and ``kerf_dra.api.registration``, so no gRPC stubs are needed.
"""

import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

from grpc_tools import protoc  # type: ignore[import-untyped]  # ships no types; one call of main()

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = Path("kerf_dra/api/_generated")
"""The folder by the name that its modules are imported by, which the generated code repeats."""


def proto_files() -> list[Path]:
    """Every ``api.proto``, relative to the repository."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / GENERATED).glob("*/api.proto"))


def generate(target: Path) -> list[Path]:
    """Write modules and stubs below ``target`` and return their paths relative to it."""
    plugin = shutil.which("protoc-gen-mypy", path=sysconfig.get_path("scripts"))
    if plugin is None:
        raise FileNotFoundError("protoc-gen-mypy is not beside this Python: install the extra `dev`")
    arguments = [f"--proto_path={ROOT}", f"--plugin=protoc-gen-mypy={plugin}"]
    outputs = [f"--python_out={target}", f"--mypy_out=quiet:{target}"]
    status = protoc.main(["protoc", *arguments, *outputs, *(str(ROOT / path) for path in proto_files())])
    if status:
        raise RuntimeError(f"protoc ended with status {status}; it printed the reason above")
    return sorted(path.relative_to(target) for path in target.glob(f"{GENERATED}/*/api_pb2.py*"))


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
        print(path)
