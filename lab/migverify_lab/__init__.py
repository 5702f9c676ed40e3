"""The lab: a real MySQL and a real TiDB on this machine, data for them, and faults to find.

In the order of use: ``cache`` and ``process`` (files, locks and processes that are certainly ours),
``mysql``, ``tidb`` and ``compose`` (where servers come from), ``servers`` (up, down, status), ``session``
(connections), ``tpch`` and ``museum`` (data), ``faults`` (what goes wrong in migrations, planted by name).
"""
