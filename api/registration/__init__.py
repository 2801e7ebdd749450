"""How the kubelet finds plugins."""
