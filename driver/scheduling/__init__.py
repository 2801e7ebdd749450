"""Rules of kube-scheduler that more than one program of Kerf needs: values in, a value out, no I/O."""
