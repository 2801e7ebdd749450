"""A real Kubernetes on this machine: API server, scheduler, controllers, kubelet, containerd and runc.

::

    python -m tools.realcluster build 1.37      once: builds Kubernetes from Go modules, 8 minutes on two cores
    python -m tools.realcluster up 1.37         a cluster of one node, ready in some 20 seconds; prints its kubeconfig
    python -m tools.realcluster kubectl 1.37 get nodes
    python -m tools.realcluster logs node1-kubelet
    python -m tools.realcluster down             what `up` has started; clusters of running tests go on

It needs root, Linux, Go and a few Debian packages (``requirements``). Only the module ``kerf`` knows Kerf: it installs
``deploy/`` and runs Kerf's programs with exactly those permissions. The modules:

====================  ==================================================================================
``versions``          the releases that can be built, and the differences between them: one table
``builds``            their programs, from Go modules, in a cache outside the checkout
``requirements``      what the machine must have
``paths``             the paths of one cluster and its TCP ports
``documents``         configuration files of the parts, from values (pure)
``parts``             the command line of every part (pure)
``processes``         programs that outlive the starting process, recorded and ended by PID
``machine``           a node's machine: process and mount namespaces that can be switched off like a computer
``instances``         several clusters at the same time
``cluster``           all of it: up, down, nodes with and without a kubelet
``nvidia_driver``     NVIDIA's DRA driver on one node, with a stand-in for its hardware
``environment``       the release that tests run on, from the environment
``api``               a client of the API server in raw JSON, independent of Kerf's own client
====================  ==================================================================================

The facts behind flags and options were tried on Debian 12 with cgroup v1, without CAP_SYS_RESOURCE.
"""
