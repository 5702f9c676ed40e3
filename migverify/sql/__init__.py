"""The only room that makes SQL text about compared tables: pure functions, no I/O.

``quoting`` makes names and literals, ``catalog`` reads definitions, ``canonical`` is the type table, ``checksum`` the
row framing and the statements of a comparison, ``key_range`` the conditions on keys.
"""
