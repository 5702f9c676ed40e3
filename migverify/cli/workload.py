"""``migverify workload``: what the source's clients asked, and whether the target answers alike."""

from __future__ import annotations

import typer

from migverify.cli import workload_capture, workload_digest

app = typer.Typer(no_args_is_help=True, help="What do clients ask, and do both sides answer alike?")

app.command(name="capture", epilog=workload_capture.EPILOG)(workload_capture.capture)
app.command(name="capture-quality", epilog=workload_capture.QUALITY_EPILOG)(workload_capture.capture_quality)
app.command(name="digest", epilog=workload_digest.EPILOG)(workload_digest.digest)
