"""A program that uses NVML with the unmodified bindings, which find the library as they do on any machine.

``python -m tests.testing.nvml.program create CARD PROFILE START SIZE [...]``: create GPU instances with their compute
instances, one after another, and print the id and the UUID of each as JSON lines.
"""

import json
import sys

import pynvml

from tests.fakes.nvml_calls import create_gpu_instance, fill_gpu_instance


def create(number: int, *places: int) -> None:
    card = pynvml.nvmlDeviceGetHandleByIndex(number)
    for profile, start, size in zip(places[::3], places[1::3], places[2::3], strict=True):
        instance = create_gpu_instance(card, profile, start, size)
        device = pynvml.nvmlComputeInstanceGetInfo(fill_gpu_instance(instance)).device
        print(json.dumps([pynvml.nvmlGpuInstanceGetInfo(instance).id, pynvml.nvmlDeviceGetUUID(device)]), flush=True)


def hold(number: int) -> None:
    print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(number)), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    pynvml.nvmlInit()
    {"create": create, "hold": hold}[sys.argv[1]](*map(int, sys.argv[2:]))
    pynvml.nvmlShutdown()
