"""Changes of a source: binlogs and carriers, read exactly.

What cannot be read exactly raises a ``ChangeError``, inside of a carrier's message an ``UndecodableError``, which
becomes a reject: docstrings here name further exceptions only. What was given before an error is certain.
"""
