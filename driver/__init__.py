"""Kerf's programs and the parts they are built from. See ARCHITECTURE.md for who may import whom."""
