"""One suite, two clusters: what Kerf relies on holds on a real Kubernetes and on the embedded cluster alike.

Each test runs on both. ``make test`` uses the embedded one, ``make e2e`` the real one. A test that only one of them
passes means that the embedded cluster differs, or that Kerf relies on something that is not so.
"""
