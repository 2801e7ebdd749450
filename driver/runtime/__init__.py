"""What every process of Kerf needs, whatever it does.

``lifecycle`` starts and stops a process, ``logs``, ``metrics`` and ``probes`` show what it does, ``backoff``,
``notifier``, ``work_queue`` and ``concurrency`` arrange its tasks, ``file_lock`` keeps processes apart, ``documents``
reads files within limits, ``yaml_file`` YAML, and ``https`` says whom connections go through, and whom they trust. The
package knows nothing of Kubernetes: of Kerf it imports ``kerf_dra.api.errors`` and the limits of documents
(``kerf_dra.api.model.json_limits``).
"""
