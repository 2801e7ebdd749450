"""NVML itself: what a process needs to call it, what it can be asked, and what its error codes say.

``session`` opens the library, calls its functions through NVIDIA's bindings and turns error codes into Kerf's errors;
``return_codes`` is the table of the codes that are an answer. ``library`` has the queries and changes of cards and
partitions, ``usage_session`` those of what they are used for: they alone know functions and structures of NVML.
``exclusive_use`` says who may use NVML while it is closed for a reset.
"""
