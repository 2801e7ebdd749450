"""``kerf demo``: an embedded cluster, Kerf's own programs beside it as processes, and a scenario that runs on them.

Data flow: ``environment`` starts the cluster and the programs (``processes``) on the ``hardware`` that settings and
manifests say; ``scenario`` applies ``manifests`` and ``generated_objects`` step by step, makes a ``report`` of what it
sees (``observation``, pure), and shows it on a ``display``. ``unsupported_manifests`` says which manifests no demo can
run (pure). ``interruption`` gives the run its folder, and ends it. ``classic_scenario`` is the one for Kubernetes 1.27
to 1.31.
"""
