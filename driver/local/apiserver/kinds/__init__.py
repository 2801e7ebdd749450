"""The kinds that the server serves, each a ``ResourceType`` of one table.

``types`` says what a kind has: names, versions, strategy, merge schema, printer columns. The tables are ``core``,
``resource`` (``classic`` in place of it for Kubernetes 1.27 to 1.30) and ``other``; ``served_kinds`` adds those of
CustomResourceDefinitions. ``validation`` has the strategies, ``printers`` the columns, ``builtin_merge_schemas`` the
merge schemas, ``conversion`` the functions between API versions.
"""
