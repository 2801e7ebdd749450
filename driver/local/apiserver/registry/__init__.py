"""The registry: what each verb does to the storage (``k8s.io/apiserver`` ``pkg/registry``).

``read`` (get, list) and ``watch`` serve from the storage. A write is a ``WriteRequest``: ``patch`` turns the body of a
patch into a function of the present object, ``create_update`` runs strategy, field ownership, validation and admission
and stores the result, ``delete`` marks or removes. ``subresources`` bind pods, evict them and finalize namespaces. The
``garbage_collector`` follows every change. Nothing here knows aiohttp.
"""
