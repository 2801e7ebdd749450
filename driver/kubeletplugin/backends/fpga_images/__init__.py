"""Image files of FPGAs that a node fetches ahead of their use, for all backends of the family ``fpga``.

``download`` reads one file over HTTPS within bounds, ``cache`` keeps files by their SHA-256, ``fetcher`` is the thread
that brings those that are described, and ``signatures`` checks them by the node's keys. Nothing here trusts a file for
the place where it lies: whoever loads one checks the very bytes again.
"""
