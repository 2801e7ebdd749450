"""The models that are compared, and how many sequences of calls each gets."""

import os
from typing import Final

from kerf_dra.driver.families.gpu.catalog import gpu_models

CASES: Final = int(os.environ.get("KERF_ORACLE_CASES", "5"))
"""Generated sequences for each model."""
_ALL_FROM: Final = 40
"""The number of sequences of the long form, which has all models: ten minutes on two cores."""
_SHORT: Final = ("a100-40gb", "h100-80gb-sxm")
"""A model whose MIG mode is switched by a reset only, and one whose mode a driver switches."""
EVERY_MODEL: Final = frozenset(model.id for model in gpu_models())
MODELS: Final = sorted(EVERY_MODEL) if CASES >= _ALL_FROM else _SHORT
