"""The columns that ``kubectl get`` prints of built-in kinds (``kubernetes/pkg/printers/internalversion`` of 1.37)."""
