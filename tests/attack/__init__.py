"""What somebody without rights, or outside of the cluster, can try: each attack is a test that must hold."""
