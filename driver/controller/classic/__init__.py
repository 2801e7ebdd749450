"""Where the cluster lets drivers allocate (KEP-3063, Kubernetes 1.27 to 1.31): claims, negotiation with the scheduler.

All is pure but ``app``, ``cluster``, ``syncing`` and ``triggering``. What is taken follows from the claims at every
decision; ``world`` holds what was last seen of them, with our own writes that no watch has told of yet.
"""
