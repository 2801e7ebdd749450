"""An installed wheel needs no checkout: examples and CRDs are inside."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_installed_wheel_runs_the_demo(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").iterdir()
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    with tempfile.TemporaryDirectory(prefix="kw", dir="/tmp") as folder:
        # Before the checkout on the path, and run from elsewhere: nothing of the checkout is found.
        environment = {**os.environ, "PYTHONPATH": str(site), "TMPDIR": folder}
        arguments = ["demo", "-f", str(site / "driver/deploy/examples/gpu-small"), "--nodes", "1", "-o", "json"]
        command = [sys.executable, "-m", "driver.cli", *arguments]
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        where = (
            "import api, cdi; from driver.demo.environment import find_packaged_folder as packaged; "
            "print(api.__file__, cdi.__file__, packaged(''))"
        )
        paths = subprocess.run(
            [sys.executable, "-c", where], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["left"]["partitions"] == 0
    assert all(path.startswith(str(site)) for path in paths.stdout.split())
