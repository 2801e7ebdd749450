"""What every process of Kerf needs, whatever it does.

``lifecycle`` starts and stops a process, ``logs``, ``metrics`` and ``probes`` show what it does, ``backoff``,
``notifier``, ``work_queue`` and ``concurrency`` arrange its tasks, ``file_lock`` keeps processes apart, and ``tls``
saves memory at start. The package knows nothing of Kubernetes: of Kerf it imports ``api.errors`` alone.
"""
