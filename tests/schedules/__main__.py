"""Plays schedules: one with ``python -m tests.schedules SEED``, so many from a seed on with ``SEED COUNT``."""

import sys

from tests.schedules.player import play_in_processes


def main(arguments: list[str]) -> int:
    first, count = (*map(int, arguments), 1)[:2]
    failures = play_in_processes(range(first, first + count))
    for failure in failures:
        print(failure)
    print(f"{count} schedules from seed {first}: {len(failures)} with a violation")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
