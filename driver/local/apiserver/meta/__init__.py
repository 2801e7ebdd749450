"""What the API server does to JSON documents, without knowing of storage or HTTP: pure functions and values.

Documents are plain dicts and lists. A document that was stored, or handed to one of these functions as old, is never
changed; functions return new documents that may share parts with their arguments.
"""
