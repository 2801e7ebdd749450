"""The only door to the API server: calls, watches, and what every program of Kerf does through them.

HTTP by aiohttp, objects by ``api``'s kinds. Nothing here knows what an object means to Kerf.
"""
