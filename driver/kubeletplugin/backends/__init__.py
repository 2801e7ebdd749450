"""The only access to hardware: what a vendor supplies (``base``), and the backends that are installed (``registry``).

``ownership`` decides what on a card is ours, ``card_executor`` makes the calls, one at a time for each card.

A backend never sees the API server, the kubelet or Kerf's files; nothing here imports another part of the plugin.
"""
