"""The only access to hardware: what a vendor supplies (``base``), and the backends that are installed (``registry``).

``ownership`` decides what on a card is ours, ``card_executor`` makes the calls, one at a time for each card.

No hardware records who made a partition. One is ours if it is exactly at a claim's place and was not there before the
claim's first try, by a note of that time; any other is *foreign* and never touched. A *static* one, which an
administrator has made for claims, is handed out as it is and never removed. A call that does not return keeps its card
from further calls until it does; other cards go on.

A backend never sees the API server, the kubelet or Kerf's files; nothing here imports another part of the plugin.
"""
