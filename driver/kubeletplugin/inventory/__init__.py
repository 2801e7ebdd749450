"""The node's published devices: which there are, in which order, with which taints.

Cards, as backends discover them, become a ``DeviceSet`` (``devices``, pure): for each kind one pool (KEP-4381) in the
order in which the scheduler should take devices. ``state.health`` adds taints, ``binding_conditions`` the conditions of
slow loads (KEP-5007), ``optional_devices`` what ResourceClasses need; ``publisher`` keeps the published set up to date;
``device_status`` (pure) is what claims say of their devices (KEP-4817). ``surveyor`` has the cards surveyed, and
``state`` (pure) has what follows: ``surveys`` finds what another program holds, ``refusals`` what the hardware keeps
refusing, and ``restrictions`` what follows for the devices. A card that a claim has and that discovery misses comes
from the claim's record (``kerf_dra.driver.partitions.recorded_cards``), and ``state.health`` decides whether it is
lost. ``node_state`` has all of it in one object, which the parts of the plugin share; ``metrics`` are of cards and
claims. The package never imports the cluster, claims or the kubelet's services.
"""
