"""Devices that nodes find by discovery (``shared.kerf.dev``): published, and given DeviceClasses, by the controller.

``plan`` says what slices, classes and reports follow from the objects and the nodes (pure), ``reconciler`` writes it.
"""
