"""Benchmarks of `tables`: one module a question. Figures are printed, never asserted; see README.md."""
