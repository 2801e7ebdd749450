"""Cards that are drained one at a time: ``report`` is what ``kerf drain`` says before, ``maintenances`` what ``kerf
why`` says of them. Both are functions of a snapshot; what is evicted is decided in ``kerf_dra.driver.reclaim``.
"""
