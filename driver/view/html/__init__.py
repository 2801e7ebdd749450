"""The pages as HTML, from the model of one snapshot: no I/O, no clock.

``elements`` escapes and writes markup, ``page`` is one page of parts that are updated by themselves, ``addresses`` are
the addresses of pages. Above them are the pieces of several pages (``card_figures``, ``why_section``) and the pages.
Cards are drawn by ``kerf_dra.driver.partitions.card_pictures`` alone.
"""
