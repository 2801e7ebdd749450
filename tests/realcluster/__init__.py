"""A real Kubernetes on this machine, to judge Kerf: API server, scheduler, controllers, kubelet, containerd and runc.

::

    python -m tests.realcluster build 1.37      once: builds Kubernetes from Go modules, 8 minutes on two cores
    python -m tests.realcluster up 1.37         a cluster of one node, ready in some 20 seconds; prints its kubeconfig
    python -m tests.realcluster kubectl 1.37 get nodes
    python -m tests.realcluster logs node1-kubelet
    python -m tests.realcluster down

It needs root, Linux, Go and a few Debian packages (``requirements``). Nothing here knows Kerf except ``kerf``, which
installs what ``deploy/`` has and runs Kerf's programs with exactly those permissions. How the parts fit together:

====================  ==================================================================================
``versions``          the releases that can be had, and what differs between them: one table
``building``          their programs, from Go modules, into a cache outside the checkout
``requirements``      what the machine must have
``places``            where everything of one cluster lies; its ports
``documents``         configuration files of the parts, from values (pure)
``parts``             the command line of every part (pure)
``processes``         programs that outlive us, remembered and ended by pid
``machine``           a node's machine: process and mount namespaces that can be switched off like a computer
``instances``         several clusters at the same time
``cluster``           all of it: up, down, nodes with and without a kubelet
``choosing``          which cluster tests run on
``api``               the API server in raw JSON, so that nothing of Kerf's own client stands between
====================  ==================================================================================

The facts behind flags and options were tried on Debian 12 with cgroup v1, without CAP_SYS_RESOURCE.
"""
