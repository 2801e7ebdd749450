"""The kubelet plugin: one process per node that partitions and loads cards, and prepares devices for claims.

An *instance* is one process; in a rolling update two overlap, of which one is *active* (``handover``). ``app`` starts
the process and ``instance`` its sockets; while it is active, ``plugin`` wires the parts that do the work. The kubelet's
calls pass ``grpc``, ``handover``, ``claims`` and ``backends``; cards pass ``backends``, ``inventory`` and ``cluster``
on their way to the API server. Layers, highest first: ``app``, ``instance``, ``discovery_handlers``, ``grpc`` and
``handover``, ``plugin``, ``deviceplugin``, ``claims``, ``cluster``, ``inventory``, ``backends``. Each family is a
plugin of its own, with a driver name, sockets, a folder, a checkpoint and a lock; ``app`` hosts those of one process
over one client. Imports are lean, since the process has a budget of memory (docs/performance.md). The package never
imports ``kerf_dra.driver.controller``.

What the parts of one family's plugin know of the node is in one object, ``inventory.node_state.NodeState``, on one
event loop; each part is given it. *In the step* means before the writer goes on: nothing else runs between. What
follows *later* is done by the parts that wait for a notifier: the publisher (publication), the health service (health).
What claims show follows from what their prepare, unprepare or repair came to (``claims.status_writer``).

=============  ============================  ==============================================  ==========================
state          written by                    read by                                         a change has
=============  ============================  ==============================================  ==========================
records        ``StepExecutor``              devices, surveys, garbage collection, repairs,  in the step: the kept
                                             statuses, metrics                               placements counted again;
                                                                                             later: publication, health
surveys        ``HardwareSurveyor``          devices, ``RecordLifecycle``, repairs, users of in the step: releases that
                                             claims, refused claims, health reports          wait and repairs requested;
                                                                                             later: publication, health
health         ``DevicePublisher``,          devices, health reports, offers of placements,  later: publication, health
               ``EarlyPreparer``             early preparation
refusals       ``RefusedClaims``,            devices, health reports                         later: publication, health
               ``HardwareSurveyor``
allocated      ``HardwareSurveyor``          devices, cards kept out                         later: publication
orphaned       ``ClaimGarbageCollector``     devices                                         later: publication
unusable       ``DeviceRepairer``,           devices                                         later: publication
               ``NumberRepairer``
kept out       ``DevicePublisher``,          devices, metrics, surveys                       in the step: they are
               ``HardwareSurveyor``                                                          chosen once more
maintenances   ``NodePlugin``                devices, offers of placements                   later: publication, health
reservations   ``DevicePublisher``,          devices, offers of placements                   later: the kubelet's list
               ``ReservationKeeper``
devices        ``DevicePublisher``           ``ClaimPreparer``, ``EarlyPreparer``, statuses, later: publication, offers
                                             offers of placements, metrics
usage          ``UsageSampler``              metrics, statuses                               in the step: statuses
                                                                                             requested where a device
                                                                                             became idle or busy
early          ``EarlyPreparer``             ``DevicePublisher``                             later: publication
suspects       ``ClaimPreparer``,            garbage collection                              later: they are looked up
               ``RecordLifecycle``,
               ``EarlyPreparer``,
               ``DeviceRepairer``
deferred       ``ClaimPreparer``,            garbage collection                              in the step of their card's
               ``RecordLifecycle``                                                           survey: suspects
               (releases that wait)
seen claims    ``ClaimPreparer``, garbage    garbage collection, statuses                    nothing
               collection, statuses
=============  ============================  ==============================================  ==========================

Records are in ``claims.checkpoint``, of which the state has a live view, and seen claims in ``cluster.claim_end``; the
classes of the other pieces are in ``inventory.state``. Devices reach the cluster by
``cluster.base.follow_publication``.
"""
