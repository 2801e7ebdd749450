"""The report of what breaks a rule of the structure tests."""

from collections.abc import Collection


def check(rule: str, found: Collection[str]) -> None:
    """Fail, with a list, for each place where ``rule`` is broken."""
    assert not found, f"{rule}:\n  " + "\n  ".join(sorted(found))
