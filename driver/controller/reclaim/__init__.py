"""``kerf controller --reclaim``: evicts the pods that hold cards in maintenance, and writes the maintenances' status.

It is a process of its own with an account of its own, because no other part of Kerf may evict pods (docs/one-card.md).
``app`` starts it, ``executor`` observes, evicts and writes statuses, ``repairer`` reports ill cards and writes
CardMaintenances for them; what is done is decided in ``kerf_dra.driver.reclaim``.
"""
