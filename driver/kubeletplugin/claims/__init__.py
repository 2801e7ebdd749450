"""The preparation of claims: from an allocated claim to devices in containers, and back.

``preparer`` reads the claim, finds its devices (``allocated_devices``, pure, which refuses an allocation that
contradicts itself: ``validation``) and what the checkpoint and the cards know of it (``record_lifecycle``, which
extended resources share; ``transitions``, pure), and has ``steps`` executed: records go to ``checkpoint``, hardware
work to ``hardware``, ``device_metadata`` (KEP-5304) and ``cdi_spec`` say what containers get. ``garbage_collection``
releases claims that no kubelet unprepares, ``refused_claims`` sends pods elsewhere whose devices the hardware keeps
refusing, ``held_claims`` finds claims whose devices another program holds, ``repair`` brings back what another program
takes away under running pods, ``early_preparation`` prepares claims before their pods are bound (KEP-5007),
``status_writer`` writes into claims what they got (KEP-4817). The package never imports the kubelet's services
(``kerf_dra.driver.kubeletplugin.grpc``).

The process may end between any two steps: the table in ``transitions`` says what is found then and what follows. A
record of an earlier boot counts as *started*. A checkpoint that is unreadable, or is not what was written
(``checkpoint.checkpoint_digest``), is never taken for an empty one: the family's plugin refuses to start and names the
file (docs/damaged-state.md). The work belongs to the plugin, not to the call: the kubelet's deadline cancels the
handler only.
"""
