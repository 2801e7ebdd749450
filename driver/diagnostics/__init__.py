"""Answers to an administrator's questions about a cluster: why something waits, what would fit, how fragmented it is.

``gathering`` is the one part with I/O: it reads a cluster into a value (``state``), which ``dump`` writes and reads as
one file. All answers are pure functions of that value; they ask the allocator that agrees with kube-scheduler and
never reason about it, so that what they say has been tried.
"""
