"""AMD's own library, Debian's package ``libxrt1``, judges the reading of xclbin files, and takes loads without a card.

The packages are unpacked and not installed. Loads go to the library's mode ``noop``, which does everything but touch a
card.
"""
