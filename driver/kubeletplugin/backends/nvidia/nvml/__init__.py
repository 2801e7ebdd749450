"""NVML itself: what a process needs to call it, and what its error codes say.

``session`` opens the library, calls its functions through NVIDIA's bindings and turns error codes into Kerf's errors;
``return_codes`` is the table of the codes that are an answer. Nothing here knows cards or partitions.
"""
