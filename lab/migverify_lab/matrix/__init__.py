"""The fault matrix: which tool sees which fault, measured on a real pair.

``competitors`` writes down the published checksum expressions of other tools, ``gallery`` holds the tables faults go
into and puts them back afterwards, ``examine`` plants a fault and asks every tool, ``page`` writes docs/faults.md.
"""
