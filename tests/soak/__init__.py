"""A soak: very many claims of simulated time through the controller's plan, the allocator, the plugin and hardware.

``python -m tests.soak --claims 1000000`` (``make soak``) runs it in as many processes as there are processors; each has
a node of its own, whose plugin is killed, rebooted, loses its kubelet and has its clock set all the time, while the
judge of ``tests.ownership`` follows who holds what. ``node`` is that node, ``memory`` what a process needs.
"""
