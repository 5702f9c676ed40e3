"""``migverify workload``: what the source's clients asked, and whether the target gives the same answers."""

from __future__ import annotations

import typer

from migverify.cli import (
    workload_anomalies,
    workload_capture,
    workload_clients,
    workload_clone,
    workload_conflict,
    workload_decision,
    workload_digest,
    workload_nightly,
    workload_plans,
    workload_poll,
    workload_probe,
    workload_replay,
    workload_reproduce,
    workload_sessions,
    workload_shadow,
)
from migverify.cli.commands import Form, add

app = typer.Typer(no_args_is_help=True, help="What do clients ask, and do both sides give the same answers?")

add(app, "capture", workload_capture.capture, workload_capture.EPILOG, (
    Form(("--poll",), workload_poll.poll, workload_poll.EPILOG, "Read the source's performance_schema, without a log."),
    Form(("--quality",), workload_capture.capture_quality, workload_capture.QUALITY_EPILOG,
         "Judge a capture: gaps, cut statements, rejects."),
), ("--spark-master", "--jobs", "--by-folder", "--server"))  # fmt: skip
add(app, "sessions", workload_sessions.sessions, workload_sessions.EPILOG)
add(app, "replay", workload_replay.replay, workload_replay.EPILOG, (
    Form(("--nightly",), workload_nightly.nightly, workload_nightly.EPILOG, "Replay the new captures of a folder."),
    Form(("--follow",), workload_shadow.follow, workload_shadow.EPILOG,
         "Ask the reads of a log that grows, for days.", advanced=workload_shadow.ADVANCED),
    Form(("--mark-clone",), workload_clone.mark_clone, workload_clone.EPILOG,
         "Mark a server as a rehearsal clone, which may be written to."),
), (
    "--protocol", "--session", "--user", "--digest", "--from", "--until", "--ddl", "--locking", "--sessions",
    "--assume-database", "--accept-write-grants", "--noise", "--jobs", "--connections", "--max-lag", "--idle",
    "--engine", "--spark-master", "--quiet", "--anomalies", "--plans", "--headroom",
))  # fmt: skip
add(app, "probe", workload_probe.probe, workload_probe.EPILOG)
add(app, "plans", workload_plans.plans, workload_plans.EPILOG)
add(app, "decision", workload_decision.decision, workload_decision.EPILOG)
add(app, "anomalies", workload_anomalies.anomalies, workload_anomalies.EPILOG)
add(app, "reproduce", workload_reproduce.reproduce, workload_reproduce.EPILOG)
add(app, "digest", workload_digest.digest, workload_digest.EPILOG)
add(app, "explain-conflict", workload_conflict.explain_conflict, workload_conflict.EPILOG)
add(app, "clients", workload_clients.clients, workload_clients.EPILOG, advanced=(
    "--keep", "--own-servers", "--source-is-scratch", "--shard", "--python", "--repository", "--facts",
    "--quiet",
))  # fmt: skip
