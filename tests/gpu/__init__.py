"""What Kerf does with NVIDIA cards as they are: on the stand-in in `make test`, on a real card with `make gpu`.

Nothing here changes a card: no mode is switched, nothing is made, removed or reset (``cards.ReadOnlyLibrary``).
"""
