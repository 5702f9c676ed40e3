"""Benchmarks of the tables road: one module a question. Figures are printed, never asserted; see README.md."""
