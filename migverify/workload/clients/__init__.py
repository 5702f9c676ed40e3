"""Do applications see the same through their drivers and pools?  Scenarios run by real client libraries on both sides.

``scenarios`` are data, ``matrix`` makes cells of them (a scenario and variant with a driver and a pool), a harness in
Java or Python runs each cell on both sides and writes what the client saw, ``compare`` judges, ``run`` holds it
together.
"""
