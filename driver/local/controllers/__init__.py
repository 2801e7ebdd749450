"""The controllers of kube-controller-manager that DRA needs."""
