"""``kerf top``: all claims and all hardware of a snapshot in one document.

``claim_rows`` says of each claim what it has and whether it waits, sorts and filters; ``cluster_overview`` adds what is
used and free of the hardware, as ``kerf frag`` counts it, and the reports of ``kerf why`` on claims that wait. A report
takes a search on every node, so that not all are made for each snapshot (``choose_explained``). Must never do I/O.
"""
