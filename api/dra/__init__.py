"""The gRPC services between kubelet and DRA plugin: a module for each version, ``registry`` for the choice among them.

Terms (KEP-4381): *prepare* makes a claim's devices ready before its pod's containers start, *unprepare* releases them.
"""
