"""Kerf on a real Kubernetes: scheduler, kubelet, containerd and runc are the judges (``make e2e``).

Every module of tests has a cluster of its own (``HARDWARE`` says which cards its node has), every test a namespace of
its own. What a container got is told by the container itself: it writes its environment and its device nodes to its
log (``pods.TELL``). After each test nothing may be left of it: no partition, no CDI file, no record.
"""
