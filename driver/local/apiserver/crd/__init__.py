"""CustomResourceDefinitions, and what they make of the objects that they define.

A definition becomes a kind like any other (``defining``); its schema says what is unknown (``pruning``), what is filled
in (``defaulting``), what is refused (``validating``, ``strategy``) and what ``kubectl get`` prints (``printing``).
"""
