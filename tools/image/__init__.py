"""The container image of Kerf, made without a container engine: ``python -m tools.image``.

- *Description*: what is in the image and how it starts, as values (``description.py``). ``deploy/image/Containerfile``
  says the same to an engine; a test compares them.
- *Layer*: a tar archive of files that lies over those below it (OCI Image Format 1.1). The lower layer has Debian's
  packages of Python and the packages of the lock file, the upper one Kerf (``layers.py``), without what imitates a
  cluster or hardware unless that is wanted (``installed_wheel.py``).
- *Archive*: an image with its layers in one file, which container runtimes import (``archive.py``).

Both layers are compiled to byte code, there is no shell and no package tool, and all files belong to root, so a
container's root file system can be read-only. Layers are kept in a cache under a key of everything that they are made
of.
"""
