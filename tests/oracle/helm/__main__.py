"""``python -m tests.oracle.helm``: the manifests of ``deploy/`` from the chart. Needs Go."""

from tests.oracle.helm.chart import Helm, write_manifests

for path in write_manifests(Helm.built()):
    print(path)
