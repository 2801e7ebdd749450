"""Programs for working on Kerf, run with ``python -m``; none is part of an installed Kerf.

``generate`` writes what is generated of pages and manifests, ``helm`` the manifests of ``deploy/`` from the chart,
``image`` the container image, and ``supply_chain`` the bill of materials. ``realcluster`` builds and runs a real
Kubernetes on this machine. ``mutants`` changes Kerf and sees whether the tests notice.

Tests import tools. A tool imports Kerf and, of the tests, only the stand-ins in ``tests.fakes``, which import no tool:
neither a tool nor a test can then import itself through the other (``tests/structure/test_tools.py``).
"""
