"""``migverify guard``: one question about both sides in detail, once or as a standing watch."""

from __future__ import annotations

import typer

from migverify.cli import capacity, check, hotspots, ids, monitors, plans, schema
from migverify.cli.commands import Form, add

app = typer.Typer(no_args_is_help=True, help="One guard in detail, once or standing: settings, schema, ids ...")

_WATCH = ("--every", "--metrics-port", "--metrics-file")

add(app, "settings", check.check, check.EPILOG, advanced=_WATCH)
add(app, "schema", schema.diff, schema.DIFF_EPILOG, (
    Form(("--snapshot",), schema.snapshot, schema.SNAPSHOT_EPILOG, "Keep the definitions as they are now."),
    Form(("--watch", "--baseline", "--every"), schema.guard, schema.GUARD_EPILOG,
         "What changed since a snapshot; once, or standing.", is_option=True),
))  # fmt: skip
add(app, "ids", ids.ids, ids.EPILOG, advanced=_WATCH)
add(app, "monitors", monitors.monitors, monitors.EPILOG, advanced=_WATCH)
add(app, "capacity", capacity.capacity, capacity.EPILOG, advanced=(*_WATCH, "--sample", "--replicas"))
add(app, "hotspots", hotspots.hotspots, hotspots.EPILOG, advanced=_WATCH)
add(app, "plans", plans.plans, plans.EPILOG, advanced=(*_WATCH, "--samples", "--assume-database"))
