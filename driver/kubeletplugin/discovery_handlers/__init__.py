"""Discovery of devices: handlers find them, and the plugin writes a DiscoveredDevice object for each.

Terms: a *DiscoveryConfiguration* says which *handler* looks for what; a handler yields the whole list of the devices
that it sees, again after each change (*list*); a DiscoveredDevice has the names of the *nodes* that see it
(``kerf_dra.api.kerf.discovery_objects``).

Flow: ``built_in_handlers`` (static, debugEcho, udev: ``udev_rules`` over ``udev_devices``) and ``remote_handlers``
(programs that have registered at the plugin's socket) yield lists to ``device_lists``, which bounds them;
``found_devices`` checks each device; ``node_entries`` decides, without I/O, what of an object is to be written;
``service`` does it.

Nothing here prepares a device for a container, and no failure of a handler ends the plugin.
"""
