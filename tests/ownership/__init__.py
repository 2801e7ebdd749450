"""Who held which partition when, judged after a run with faults, in the manner of Jepsen (jepsen.io, Elle's histories).

``history`` has the events that a test notes: what the API server says of claims, what the kubelet asked of the plugin
and was answered, what appeared on the hardware and went, and who did it. ``judge`` is pure: it walks a history and
returns the first thing that must never happen. It knows nothing of Kerf's records, checkpoints or notes.
"""
