"""What is done with a free card in maintenance, and how it is verified (docs/one-card.md).

An *act* is what ``then`` of a CardMaintenance names: a reset, a switch of MIG mode, a *hook* (a program of the node).
It is done once for each generation of the object. A *record* says how far it is, on the disk before each step, so that
a process that was killed has a successor that knows: what had begun is verified, not done again.

::

    CardMaintenances, records ──> decision   what is next for each of them; what keeps an act from beginning
                                  │
    work_file <── records ─────── worker ──> the backend (``MaintainingBackend``), or hooks
                                  │
                                  └────────> status.work, the taint (``inventory.state.maintenances``), events

While an act runs and until the card is verified, ``CardExecutor.refuse_prepares`` keeps claims from it. The package
never imports ``claims``.
"""
