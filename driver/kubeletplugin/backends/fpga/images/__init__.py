"""The images of FPGAs on a node, for all backends of the family ``fpga``.

``catalog`` has the shells and functions that are described, without those whose files are not as described; ``files``
has the image files, whose ``header`` each backend reads in its own format. ``download`` reads one file over HTTPS
within bounds, ``cache`` keeps files by their SHA-256, ``fetcher`` is the thread that brings those that are described,
``signatures`` checks them by the node's keys, and ``config`` is what a node says of all this. Nothing here trusts a
file for the place where it lies: the loader of one checks the very bytes again. Which namespaces may use a function is
checked when a claim is prepared (``backends.fpga.parameters``).
"""
