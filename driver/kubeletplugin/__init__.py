"""The kubelet plugin: one process per node that partitions and loads cards, and prepares devices for claims.

An *instance* is one process; in a rolling update two overlap, of which one is *active* (``handover``). ``app`` starts
the process and ``instance`` its sockets; while it is active, ``plugin`` wires the parts that do the work. The kubelet's
calls pass ``grpc``, ``handover``, ``claims`` and ``backends``; cards pass ``backends``, ``inventory`` and ``cluster``
on their way to the API server. The package never imports ``kerf_dra.driver.controller``.

What the parts of one family's plugin know of the node, on one event loop, and what follows from a change. *In the step*
means before the writer goes on: nothing else runs between.

=============  ============================  ==============================================  ==========================
state          written by                    read by                                         a change has
=============  ============================  ==============================================  ==========================
records        ``StepExecutor``,             devices, surveys, garbage collection, repairs,  in the step: the kept
               ``NumberRepairer``            statuses, metrics                               placements counted again;
                                                                                             later: publication, health
surveys        ``HardwareSurveyor``          devices, ``ClaimPreparer``, repairs, users of   in the step: releases that
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
reservations   ``DevicePublisher``,          devices, offers of placements                   later: the kubelet's list
               ``ReservationKeeper``
devices        ``DevicePublisher``           ``ClaimPreparer``, ``EarlyPreparer``, statuses, later: publication, offers
                                             offers of placements
suspects       ``ClaimPreparer``,            garbage collection                              later: they are looked up
               ``EarlyPreparer``
seen claims    ``ClaimPreparer``, garbage    garbage collection, statuses                    nothing
               collection, statuses
=============  ============================  ==============================================  ==========================

Records are in ``claims.checkpoint``, suspects in ``claims.preparer``, seen claims in ``cluster.claim_end``, and the
others in ``inventory``.
"""
