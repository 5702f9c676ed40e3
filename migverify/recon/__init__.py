"""Road 3, do the domains agree?  Rules over tables, shards, services and change streams.

``document`` and ``load`` read rules from YAML, ``build`` turns a rule's datasets into relations of canonical texts, an
engine joins them, ``kinds`` judge what differs, ``evaluate`` reads again what differs once, ``run`` keeps the results.
"""
