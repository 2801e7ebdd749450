"""The repair of prepared claims while the plugin runs: each survey compares records, files and cards.

A container that restarts gets what the claim's CDI file names; the kubelet does not call prepare again for it. So what
another program takes away under a running pod comes back without a call: ``file_repairer`` writes files of claims
again, ``device_repairer`` makes lost partitions again where their place is free, as ``repair_decision`` (pure) says,
``number_repairer`` follows the numbers that the kernel gives device nodes. All work on a claim by its single flight
(``prepared_records``), so never beside its prepare or unprepare, and only on a proof: a list of what is on the card
that has succeeded, twice.
"""
