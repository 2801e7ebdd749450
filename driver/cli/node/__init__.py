"""Commands that read the hardware and the state of the node on which they run, and change nothing."""
