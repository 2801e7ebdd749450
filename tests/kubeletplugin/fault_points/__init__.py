"""A fault at each call of an operation: a kill, EIO or a full disk at every system call, a kill at every call of NVML.

``node`` has a node, whose plugin runs as in production over fakes of API server and kubelet; ``cards`` its cards, on
the stand-in for NVML or simulated. ``scenarios`` lists the operations; ``trial`` does one of them in a child process
(``child``), with a fault, and lets the kubelet go on after a restart; ``verdict`` judges what is left.
``python -m tests.kubeletplugin.fault_points`` counts the calls of an operation, and tries each.
"""
