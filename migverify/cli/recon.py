"""``migverify recon``: rules over tables, shards, services and change streams."""

from __future__ import annotations

import typer

from migverify.cli import recon_check, recon_explain, recon_init, recon_run, recon_watch
from migverify.cli.commands import add

app = typer.Typer(no_args_is_help=True, help="Do the domains agree? Rules over tables, shards and services.")

add(app, "init", recon_init.init, recon_init.EPILOG)
add(app, "check", recon_check.check, recon_check.EPILOG)
add(app, "run", recon_run.run, recon_run.EPILOG, advanced=("--csv", "--spark-master", "--full"))
add(app, "explain", recon_explain.explain, recon_explain.EPILOG)
add(app, "watch", recon_watch.watch, recon_watch.EPILOG, advanced=(
    "--engine", "--spark-master", "--lookback", "--recheck", "--every", "--max-lag", "--stuck", "--idle-windows",
    "--metrics-file", "--timeout",
))  # fmt: skip
