"""``make kernel-dfl``: the kernel's own DFL drivers, in a guest, judge the backend ``dfl`` and its stand-in.

The *guest* is a Debian kernel in QEMU, emulated, whose root is this machine's own file system, read-only, so that Kerf
runs there as it does here. Its two *cards* are display adapters whose memory has the registers of DFL cards; a kernel
module plays them (``card``). A *case* is tried on a *bench*: on the guest's cards, and here on the stand-in of
``tests/fakes/dfl``.

``packages`` -> ``modules`` -> ``guest`` -> ``trial`` (in the guest; ``cases`` on ``bench``) -> ``report``.

``kernel_contract`` is the contract of backends on the guest's cards, which takes long: ``ARGS=--contract``.
"""
