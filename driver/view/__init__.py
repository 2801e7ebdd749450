"""``kerf view``: a read-only page of a cluster's cards and claims, served on loopback to one person.

Terms: a *snapshot* is a ``ClusterState`` (``kerf_dra.driver.diagnostics``) with its indexes; a *page* is what one
address shows of a snapshot; a *part* of a page is an element that is updated by itself, such as a card.

Data flow: ``snapshot_reader`` reads the cluster again and again into ``snapshots``, which has the newest snapshot and
since when it is not current, and before the first one what has arrived of it; ``page_builder`` makes pages of it by
``html`` over ``snapshot_view``, ``timeline``, ``class_matches`` and ``what_if``, which are pure; ``request_check``
(pure) says whom ``server`` answers, and ``server`` sends pages, and ``update_stream`` sends open ones the parts that
have changed.

The package writes nothing to the cluster and draws no card: ``kerf_dra.driver.partitions.card_pictures`` does.
"""
