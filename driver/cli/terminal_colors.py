"""Whether the output of commands has colors: what the environment says."""

from collections.abc import Mapping


def choose_color(environment: Mapping[str, str]) -> bool | None:
    """Return whether output is to have colors: True or False whatever it goes to, None: if it goes to a terminal.

    ``NO_COLOR`` (https://no-color.org) comes first, if it is not empty; then ``FORCE_COLOR`` (https://force-color.org),
    of which ``0`` and ``false`` mean none; a terminal whose ``TERM`` is ``dumb`` has none.
    """
    if environment.get("NO_COLOR"):
        return False
    if forced := environment.get("FORCE_COLOR"):
        return forced.lower() not in ("0", "false")
    return False if environment.get("TERM") == "dumb" else None
