"""kube-scheduler as far as DRA goes: ``structured`` allocates devices; where drivers do, ``classic`` chooses nodes."""
