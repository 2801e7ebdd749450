"""``python -m tools.helm``: the manifests of ``deploy/`` from the chart. Needs Go."""

from tools.helm.chart import Helm, write_manifests

for path in write_manifests(Helm.built()):
    print(path)
