"""Simulated GPUs and FPGAs that behave like hardware: the backend of tests and of ``kerf demo``.

``config`` says which cards there are; ``backend`` hands each call to ``gpu_card`` or ``fpga_card``, which change the
card's state (``gpu``, ``fpga``: pure rules; ``state_store``: files) by ``steps``, with delays and injected faults.
``handles`` is what the checkpoint keeps, and what containers get.

Entry points of the group ``kerf.backends`` name the factories; only the demo imports the package, and an image may be
without it.
"""

from kerf_dra.driver.kubeletplugin.backends.simulated.backend import (
    SimulatedBackend,
    open_backend,
    open_fpgas,
    open_gpus,
)

__all__ = ["SimulatedBackend", "open_backend", "open_fpgas", "open_gpus"]
