"""The embedded cluster of ``kerf demo``: a Kubernetes small enough to start inside one process.

It knows Kubernetes, not Kerf: what runs against it must run against a real cluster unchanged.
"""
