"""Everything Kerf says and hears: one internal model and every wire format around it. No I/O lives here."""
