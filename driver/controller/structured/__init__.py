"""Structured."""
