"""The import package of Kerf: ``kerf_dra.api``, ``kerf_dra.cdi``, ``kerf_dra.driver``.

In the repository these three are links to the folders of the same names at its root; in an installed Kerf they are
folders. From the root of a checkout ``api``, ``cdi`` and ``driver`` can be imported as well, as second modules with
second classes: no code of Kerf does so (``TID251`` in ``pyproject.toml``).
"""
