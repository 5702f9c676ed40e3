"""``migverify workload``: what the source's clients asked, and whether the target answers alike."""

from __future__ import annotations

import typer

from migverify.cli import (
    workload_capture,
    workload_clients,
    workload_clone,
    workload_conflict,
    workload_digest,
    workload_nightly,
    workload_poll,
    workload_probe,
    workload_replay,
    workload_reproduce,
    workload_sessions,
)

app = typer.Typer(no_args_is_help=True, help="What do clients ask, and do both sides answer alike?")

app.command(name="capture", epilog=workload_capture.EPILOG)(workload_capture.capture)
app.command(name="capture-quality", epilog=workload_capture.QUALITY_EPILOG)(workload_capture.capture_quality)
app.command(name="explain-conflict", epilog=workload_conflict.EPILOG)(workload_conflict.explain_conflict)
app.command(name="digest", epilog=workload_digest.EPILOG)(workload_digest.digest)
app.command(name="poll", epilog=workload_poll.EPILOG)(workload_poll.poll)
app.command(name="sessions", epilog=workload_sessions.EPILOG)(workload_sessions.sessions)
app.command(name="replay", epilog=workload_replay.EPILOG)(workload_replay.replay)
app.command(name="probe", epilog=workload_probe.EPILOG)(workload_probe.probe)
app.command(name="waivers", epilog=workload_probe.WAIVERS_EPILOG)(workload_probe.waivers)
app.command(name="reproduce", epilog=workload_reproduce.EPILOG)(workload_reproduce.reproduce)
app.command(name="mark-clone", epilog=workload_clone.EPILOG)(workload_clone.mark_clone)
app.command(name="clients", epilog=workload_clients.EPILOG)(workload_clients.clients)
app.command(name="nightly", epilog=workload_nightly.EPILOG)(workload_nightly.nightly)
