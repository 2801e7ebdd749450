"""Counters of what is loaded into FPGAs, for all backends of the family ``fpga``."""

from typing import Final

from kerf_dra.driver.runtime import metrics

LOADS: Final = metrics.counter("kerf_fpga_loads_total", "Images that were loaded into slots of FPGAs.")
WARM_HITS: Final = metrics.counter(
    "kerf_fpga_warm_hits_total", "Images that were in their slot already, so that nothing was loaded."
)
