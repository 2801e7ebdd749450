"""Simulated GPUs and FPGAs that behave like hardware: the backend of tests and of ``kerf demo``.

The factory of the entry point ``simulated`` is ``open_backend``.
"""

from driver.kubeletplugin.backends.simulated.backend import SimulatedBackend, open_backend

__all__ = ["SimulatedBackend", "open_backend"]
