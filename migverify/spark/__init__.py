"""Spark runs the tasks: the only package that imports pyspark.

``session`` opens and closes a Spark session with the values of ``settings``, ``engine`` runs tasks on one,
``worker`` is what a Python worker of an executor does with a task, ``pyfiles`` packs what a bare executor needs,
``java`` finds Java and keeps the class archive that makes it start fast. Importing this package imports none of
them: a Python worker needs ``worker`` only.
"""
