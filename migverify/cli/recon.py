"""``migverify recon``: rules over tables, shards, services and change streams."""

from __future__ import annotations

import typer

from migverify.cli import recon_check, recon_explain, recon_init, recon_run, recon_watch

app = typer.Typer(no_args_is_help=True, help="Do the domains agree? Rules over tables, shards and services.")

app.command(name="init", epilog=recon_init.EPILOG)(recon_init.init)
app.command(name="check", epilog=recon_check.EPILOG)(recon_check.check)
app.command(name="schema", epilog=recon_check.SCHEMA_EPILOG)(recon_check.schema)
app.command(name="keys", epilog=recon_check.KEYS_EPILOG)(recon_check.keys)
app.command(name="run", epilog=recon_run.EPILOG)(recon_run.run)
app.command(name="explain", epilog=recon_explain.EPILOG)(recon_explain.explain)
app.command(name="watch", epilog=recon_watch.EPILOG)(recon_watch.watch)
