"""What devices are by their attributes, and what container runtimes say of them: values alone, without a cluster.

``device_parts`` finds devices that were cut from one another, ``runtime_messages`` messages about devices.
"""
