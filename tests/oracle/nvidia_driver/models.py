"""The models that are compared, how many sequences of calls each gets, and which partitions these leave out."""

import os
from collections.abc import Mapping
from typing import Final

from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models

CASES: Final = int(os.environ.get("KERF_ORACLE_CASES", "5"))
"""Generated sequences for each model."""
_ALL_FROM: Final = 40
"""The number of sequences of the long form, which has all models: ten minutes on two cores."""
_SHORT: Final = ("a100-40gb", "h100-80gb-sxm")
"""A model whose MIG mode is switched by a reset only, and one whose mode a driver switches."""
EVERY_MODEL: Final = frozenset(model.id for model in gpu_models())
MODELS: Final = sorted(EVERY_MODEL) if CASES >= _ALL_FROM else _SHORT
_SEVEN: Final = 7
_MEMORY_DOUBLED_ENUM: Final = 9
"""NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2: 1g with double memory."""


def find_profiles_that_fail(model_id: str) -> Mapping[str, frozenset[str]]:
    """Return the profiles that NVIDIA's driver cannot prepare, by what they are.

    It takes another compute profile than the stand-in has for them: of two with seven slices that for NVLink, which no
    known card has (kubernetes-sigs/dra-driver-nvidia-gpu#1480), and for 1g with double memory and more multiprocessors
    than 1g that of 1g. What it then leaves behind would show in all later steps.
    """
    profiles = gpu_model(model_id).profiles
    ordinary = min(one.multiprocessors for one in profiles if one.compute_slices == 1) if profiles else 0
    return {
        "a partition with seven compute slices": frozenset(
            one.name for one in profiles if one.compute_slices == _SEVEN
        ),
        "1g with double memory": frozenset(
            one.name
            for one in profiles
            if one.gi_profile_enum == _MEMORY_DOUBLED_ENUM and one.multiprocessors > ordinary
        ),
    }
