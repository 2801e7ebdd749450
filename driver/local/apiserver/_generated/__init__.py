"""The protobuf messages of built-in kinds, generated: never edited, read by ``meta/protobuf_messages.py`` only."""
