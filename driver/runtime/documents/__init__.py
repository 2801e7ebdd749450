"""Documents that people or other programs write: read within limits, and composed within limits.

``input_file`` reads the bytes of a file, a pipe or standard input; ``yaml_loader`` makes values of YAML, which
``yaml_file`` offers to programs with messages for people. A document without end, without anything in it, or with more
levels or values than any real one has, is an error and no wait, no crash and no exhaustion of memory. ``output_file``
replaces a file of Kerf's own durably.
"""
