"""End-to-end tests on a real Kubernetes with scheduler, kubelet, containerd and runc (``make e2e``).

Each test module has its own cluster, whose node has the cards that ``HARDWARE`` describes; each test has its own
namespace. A container reports what it got by writing its environment and device nodes to its log
(``pods.REPORT_COMMAND``). After each test no partition, CDI file or record of it may be left.
"""
