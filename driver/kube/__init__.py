"""The only access to the API server: calls, watches, and what every program of Kerf does with them.

Terms are client-go's: an *informer* keeps a *store* of all objects of one kind by a list and a watch; *leader election*
uses a Lease; an *event* is a Kubernetes Event.

Data flow: ``http.client`` sends calls and reads watches, ``watch_decoder`` makes values of the answers by ``api``'s
kinds, ``informer`` follows them into a ``store`` and calls its event handler. ``slice_plan`` (pure) and
``slice_publisher`` reconcile ResourceSlices; ``discovery`` says what a cluster serves, and ``api_changes`` notices when
that changes. Of slices and nodes a store keeps only what is read (``kerf_dra.api.wire.projected_kind``). An *assume
cache* lays own writes over a store until the store shows them. ``http.write_history`` refuses for a while what another
program undoes each time it is written.

Never imported here: the allocator, partitions, or any program. Nothing here knows what an object means to Kerf.
"""
