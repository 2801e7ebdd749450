"""Real container runtimes, given specs of ours: what they do is what ``inject`` says (``make e2e``)."""
