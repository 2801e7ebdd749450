"""Measurements, each beside a baseline of the same run: ``make bench``. Nothing here is an assertion."""
