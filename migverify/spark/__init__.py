"""Spark runs the tasks: the only package that imports pyspark.

``session`` opens and closes a Spark session with the values of ``settings``, ``engine`` runs tasks on one. Importing
this package imports neither: a Python worker needs ``engine`` only.
"""
