"""Kerf's own API group, ``kerf.dev``."""
