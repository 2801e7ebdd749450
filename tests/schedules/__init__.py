"""Random schedules of everything that can befall a node, in one process and on a virtual clock, judged by ownership.

A schedule is a seed: ``python -m tests.schedules SEED`` plays one again. ``process`` is a process of the plugin that
can be killed at any of its effects, ``nvidia_cards`` the hardware, with what others do to it, and the record of what
appears on it, ``pods`` what the kubelet calls for; ``schedule`` chooses what happens next and brings the node to rest.
"""
