"""Container Device Interface: spec files and container edits, for drivers and tools. Imports nothing of Kerf."""
