"""Kerf's tests. A folder with the name of a package tests that package; the others test across packages.

``contract`` asks the embedded cluster and a real one the same questions, ``e2e`` and ``installation`` judge Kerf on a
real Kubernetes, ``upgrade`` keeps what upgrades start from, ``flows`` runs Kerf's programs on the embedded cluster.
``oracle`` asks libraries and programs of others for their verdicts, ``conformance`` replays recorded ones. ``attack``
tries what a user without rights can do, and what breaks; ``schedules`` plays random schedules of faults over the
plugin, ``soak`` very many claims, and ``ownership`` judges who held what in them; ``fuzz`` feeds readers of files.
``bench`` measures. ``chart`` renders the chart, ``alerts`` judges alerts and the dashboard. ``gpu`` runs on NVIDIA's
cards. ``structure`` keeps names, words, sizes and references.

Hardware is faked at Kerf's own interfaces (``fakes``): trees of files and a C library that answers system calls for the
backend ``dfl``, trees and a library with XRT's functions for ``xrt``, a daemon on a real socket for ``slots``, trees
with the drivers' answers for ``intel``; for ``nvidia`` the stand-in for NVML (``kerf_dra.driver.testing.nvml``).
Backends pass ``kerf_dra.driver.testing.contract``.
"""
