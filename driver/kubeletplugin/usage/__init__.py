"""What claims use of their devices: samples of the hardware, the energy of cards by claim, and idleness.

Terms: a *sample* is what a backend says of a card and its prepared devices at one moment (``backends.base``); a
*holder* is a prepared device that gets a part of its card's energy; a device is *idle* when nothing has computed on it
for a time.

Data flow: ``sampler`` has a backend sample each card at an interval -> ``usage_tracker``, which notes which claims had
which device for how long -> ``energy_account`` (energy by claim) and ``idleness``, both pure -> ``usage_document``, in
a file, so that totals outlive the process -> ``NodeState.usage``, which metrics read -> the status of claims whose
device became idle or busy.

No prepare waits for any of it. The package never imports ``kerf_dra.driver.kubeletplugin.grpc``.
"""
