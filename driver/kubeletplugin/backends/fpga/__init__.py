"""One load of functions into the slots of an FPGA card: what all backends for FPGAs do in the same way.

A vendor's backend supplies what only it knows: which slots a device has, who uses them, what a slot reports, and how it
is loaded (the abstract methods of ``SlotLoader``). What must be the same on every card is here once: the order of the
steps, what a namespace may use, which image goes where, what is noted, how long a load may take, what counts as loaded,
and what a release leaves.

Terms: a *shell* is the static design of a card, with *slots* for functions (partial reconfiguration; OPAE: AFU slots).
An *image* is the file of a function for a slot, or a *blank* one without a function. The *AFU id* is the UUID that a
slot reports of what it runs. A *warm hit* is a slot that runs the image already, so that nothing is loaded. ``Keep``
and ``Blank`` are what the FpgaConfig of a claim asks for at its release.

Data flow::

    descriptions (files, objects) -> images.catalog (what may be loaded) -> backend.discover -> cards
    claim -> parameters (configuration, function, namespace, limit)
          -> slot_loader.load_slots (choose images, check, hold, note, load, read back) -> SlotPlan -> handle
    handle -> slot_loader.choose_release (leave, keep or blank) -> the slots

``image_card`` is the loader of cards that are programmed with image files, ``backend`` the Backend protocol over the
cards of one kind, ``config`` what all configurations have. Nothing here imports a vendor's backend, nor what one is
registered with, and ``slot_loader`` reads and changes nothing itself.
"""
