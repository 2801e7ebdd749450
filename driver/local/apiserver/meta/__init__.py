"""What the API server does to JSON documents, knowing neither storage nor HTTP: pure functions and values.

A document is a plain tree of dicts, lists and scalars. A document that is stored, or that is handed in as the old or
live one, is never changed: functions return new documents, which may share parts with their arguments. Functions that
change their argument in place say so.

- ``documents``: look up, copy, change at a path; ``names``: names, label keys, ``metadata`` as a whole
- ``merge_schema``: how the value at each path merges; ``field_sets``: sets of fields, and comparison by them
- ``managed_fields``: field ownership and server-side apply; ``patches``, ``strategic_merge``: the patch types
- ``label_selectors``: label and field selectors; ``status_errors``: field errors and ``Status`` responses

It imports nothing of ``kerf_dra.driver.local.apiserver`` outside this package.
"""
