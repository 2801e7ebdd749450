"""CustomResourceDefinitions, and the kinds that they define.

``definitions`` turns a definition into a ``ResourceType`` like those of ``kinds``. Its structural schema says which
fields are unknown (pruned) and which are defaulted (``structural_schema``), which values are invalid
(``object_validation``, ``cel_rules``), and what ``kubectl get`` prints (``printer_columns``). ``schema_validation``
checks the schema itself when its definition is written. Source of all: ``apiextensions-apiserver`` ``pkg``.
"""
