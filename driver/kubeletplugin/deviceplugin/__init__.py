"""The kubelet's device plugin interface (v1beta1) over a node's placements: what is kept, listed, given and released.

Terms: an *extended resource* is what a pod counts in its ``limits``; a *device ID* names one placement of it to the
kubelet, by its device's name in slices. A class offers a resource (``devicePlugin``), and each node keeps so many of
the class's placements for it, apart from the slices (``inventory.state.reservations``).

``reservation_keeper`` sees to it that what is kept is in no slice and no claim before it is listed.
``resource_allocator`` answers the kubelet: which devices there are, and Allocate, which prepares a placement by the
same steps as a claim's (``claims.record_lifecycle``), with a record of its own. ``preference`` (pure) chooses among
free devices. No call of the interface ends an allocation: ``resource_collector`` takes back what no pod has any more.

Where no scheduler counts the users of devices that several nodes reach (Kubernetes 1.29 to 1.31), the same is done for
devices found by discovery (``discovered_device_offer``) in place of placements (``placements``): both are an ``offer``.

The package never imports the kubelet's services (``kerf_dra.driver.kubeletplugin.grpc``), which serve it at a socket.
"""
