"""A conformance test for the kubelet plugin of any DRA driver, in whatever language it is written (``kerf sanity``).

Problem: Kubernetes does not test the drivers of others, and there is nothing for DRA like csi-sanity. Each driver finds
the same faults in the field: repeated calls, claims that are unknown, CDI names that do not resolve.

Goal: run what a kubelet may do at the sockets of a driver that runs, and say for each *row* what was tried, what was
seen, by which rule that is wrong, and what to do.

Non-goals: to judge what a driver does with its hardware, to measure, to replace a test with pods.

Interface: the driver's registration socket, a cluster in which it publishes its devices, the folders of its CDI files,
and perhaps the command that starts it, also twice at the same time, and that of a program that uses a device. A row is
*must* (the kubelet, the API server or a container runtime depends on it), *should* (Kubernetes' helper library for
drivers does so) or *may* (better for users, and the helper library does not).

Data flow: ``driver_under_test`` calls the sockets; ``allocated_claims`` makes claims and allocates them from the
driver's own slices by Kerf's allocator, for one device each or as copies of the user's claims (``given_claims``); the
modules of rows judge answers, slices and CDI files; ``run`` runs them in order; ``report`` prints them.

What can go wrong: the socket is no plugin, hangs or answers garbage: each call has a deadline and a limit of bytes, and
its error is what was seen. The test is killed: its claims have a label, by which the next run unprepares and deletes
them first. The driver has no device, or too few: rows that need more are skipped, which is counted.

It makes only objects of its own, deletes them, and touches no other but the driver's slices, which it deletes once.
Never imports the plugin, the controller, or what imitates a cluster.
"""
