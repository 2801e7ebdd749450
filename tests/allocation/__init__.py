"""The allocator: cases of our own, an exhaustive stand-in, and a judge of results that shares no code with either."""
