"""Commands that run until SIGTERM: the programs of a cluster and of its nodes."""
