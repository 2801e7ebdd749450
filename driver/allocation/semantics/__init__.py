"""Semantics."""
