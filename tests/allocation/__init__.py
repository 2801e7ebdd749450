"""Tests of the allocator: own cases, an exhaustive search, and a check of results that shares no code with either."""
