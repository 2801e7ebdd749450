"""Driver families: each kind of device that Kerf drives, with its DRA driver name, vocabulary and configuration.

Terms: a *family* (``base``) is a DRA driver of its own, such as ``gpu.kerf.dev``; its *vocabulary* is the attributes
and capacities that all its devices have; its *geometries* are the partitions of its models
(``kerf_dra.driver.partitions``); a *configuration* is a kind of opaque parameters for its devices. ``registry`` finds
the families that are installed: Kerf's own (``gpu``, ``fpga``), the entry points of the group ``kerf.families``, and
backends that entry points add to a family (``kerf.backends``). The controller, the kubelet plugin and the command line
know devices through families only.

The package does no I/O, and imports neither the controller nor the plugin: a family names its backends, and only the
plugin loads them.
"""
