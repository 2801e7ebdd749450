"""Metrics of cards, claims and extended resources."""
