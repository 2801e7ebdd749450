"""``python -m tests.oracle.helm``: the manifests of ``deploy/`` from the chart. Needs Go."""

import tempfile
from pathlib import Path

from tests.oracle.helm.chart import Helm, write_manifests

with tempfile.TemporaryDirectory() as folder:
    for path in write_manifests(Helm.built(Path(folder))):
        print(path)
