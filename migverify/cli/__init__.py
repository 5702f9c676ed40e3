"""The command line: one Typer app a file; the one place that prints and exits."""
