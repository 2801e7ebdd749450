"""A stand-in for ``nvidia-smi``: of all that it does, the time slices of cards.

It is written into the driver's root as a program (``driver_tree``), so it imports the standard library only. What was
set last is kept in the file ``timeslices`` of the machine's folder, one line for each card. As NVIDIA's it takes UUIDs
of cards only.
"""

import fcntl
import os
import sys

# Neither pathlib nor typing: to import them takes longer than all else of this program.
_USAGE = "usage: nvidia-smi compute-policy -i UUID --set-timeslice 0|1|2|3"
_FILE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "..", "timeslices")  # noqa: PTH118, PTH120


def main(arguments: list[str]) -> int:
    """Set the time slice of a card."""
    if len(arguments) != 5 or arguments[:2] != ["compute-policy", "-i"] or arguments[3] != "--set-timeslice":
        print(_USAGE)
        return 1
    card, value = arguments[2], arguments[4]
    if value not in ("0", "1", "2", "3"):
        print(f"Invalid time-slice option {value}")
        return 1
    if not card.startswith("GPU-"):
        print(f"Unable to determine the device handle for GPU {card}: Not Found")
        return 6
    with open(_FILE, "a+") as file:  # noqa: PTH123
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        slices = dict(line.split() for line in file)
        slices[card] = value
        file.truncate(0)
        file.write("".join(f"{name} {one}\n" for name, one in slices.items()))
        file.flush()
        os.fsync(file.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
