"""What every process of Kerf has, whatever it does: start and stop, logs, probes, metrics, back-off and work queues."""
