"""Reclaiming devices from pods: which pods hold a card, what may be done about them, where they fit afterwards. Pure.

A *goal* names what is to become free; there is one so far, a whole card of one node. A *holder* is a pod that holds a
device of the card by a claim, or such a claim that no pod uses. Its *verdict* says whether it is evicted, or why not.

::

    slices of the node ──> cards      which devices are the card's, and whether its node withholds it
    claims, pods ────────> holders    who holds them, with a verdict for each
    all nodes ───────────> plan       in which order they are evicted, where they fit, which budgets are in the way
    the spec, the card, the holders ──> progress    what ``kerf controller --reclaim`` evicts now, and the status
    cards that need a repair ──> automatic_repairs  the CardMaintenances that it writes and deletes by itself

Nothing here evicts: ``kerf_dra.driver.controller.reclaim`` does, ``kerf drain --dry-run`` only shows the plan.
"""
