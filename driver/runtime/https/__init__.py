"""HTTPS connections to other programs: which proxy they go through (``proxy``), and whom they trust (``tls``)."""
