"""Pictures of cards: who holds which of their units, what is free, and what of that is of no use. The package is pure.

Terms: a *unit* is a numbered shared counter of amount 1 (KEP-4815), such as ``memory-slice-0``, or a whole device of a
pool without counters; a *holder* is a claim; a *gauge* is a counter or a capacity of another amount. The package knows
no driver: what is drawn follows from ResourceSlices and claims.

Data flow: ``picture_builder`` makes each card a ``CardPicture`` (``card_picture``) from slices and claims;
``claim_colors`` gives each claim a color; ``text_picture`` draws the pictures as text, with escape sequences for
terminals if wanted, and ``svg_picture`` as SVG. No other code draws cards, and what these two write has no control
character and no markup of the names in it.
"""
