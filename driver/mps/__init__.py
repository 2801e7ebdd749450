"""MPS: the control daemons of NVIDIA's Multi-Process Service, in a process of their own (``kerf mps-daemons``).

A daemon serves the clients of one GPU or one MIG partition and must outlive restarts and updates of the kubelet plugin.
So the plugin starts none: it writes a request into a folder, and ``service`` keeps a daemon for each request and says
beside it whether the daemon answers (``documents``). ``control_daemon`` is one daemon, ``driver_programs`` how programs
of NVIDIA's driver are run. See docs/nvidia-sharing.md.
"""
