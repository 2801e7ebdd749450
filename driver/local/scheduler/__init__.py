"""kube-scheduler as far as DRA goes: ``structured`` allocates devices, ``classic`` (until 1.31) leaves it to drivers."""
