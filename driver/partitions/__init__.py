"""Geometry of cards turned into devices and counters. Pure: tables in, values out."""
