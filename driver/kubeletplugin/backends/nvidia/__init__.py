"""NVIDIA GPUs through NVIDIA's management library (NVML).

``nvml`` calls NVML through its bindings, returns ``readings`` and raises Kerf's errors. ``geometry`` makes a model of
what a card reports, ``mig_mode`` decides how a card can be allocated in its MIG mode (both pure), ``system_files``
reads what the kernel says in ``/proc`` and ``/sys``. ``card`` surveys a card, makes partitions and removes them;
``health`` watches the cards. ``backend`` is the protocol over all cards, ``config`` its configuration, and ``handles``
what the checkpoint keeps and containers get. See docs/nvidia.md.

What CUDA needs in a container: ``driver_root`` finds the driver's files below a root (``file_root``), ``device_nodes``
the nodes, ``container_edits`` makes CDI edits of them (pure), and ``cdi_hook`` brings the hook's program to the host.
See docs/nvidia-containers.md.
"""

from kerf_dra.driver.kubeletplugin.backends.nvidia.backend import NvidiaBackend, open_backend

__all__ = ["NvidiaBackend", "open_backend"]
