"""``migverify runbook``: write down what is done, rehearse it with people, run it, and prove what happened."""

from __future__ import annotations

import typer

from migverify.cli import (
    runbook_cases,
    runbook_check,
    runbook_history,
    runbook_page,
    runbook_people,
    runbook_readiness_watch,
    runbook_run,
    runbook_show,
    runbook_traffic,
)
from migverify.cli.commands import Form, add

app = typer.Typer(no_args_is_help=True, help="Runbooks: check, run with people, status, report.")

add(app, "check", runbook_check.check, runbook_check.EPILOG, advanced=("--all", "--cases", "--commands", "--passed"))
add(app, "run", runbook_run.run, runbook_run.EPILOG)
add(app, "status", runbook_show.status, runbook_show.STATUS_EPILOG)
runbook_people.register(app)
add(app, "readiness", runbook_history.readiness, runbook_history.READINESS_EPILOG, (
    Form(("--dr",), runbook_cases.cases, runbook_cases.EPILOG, "Which disaster recovery cases passed, and where."),
    Form(("--watch",), runbook_readiness_watch.readiness_watch, runbook_readiness_watch.EPILOG,
         "Evaluate again and again; announce what changes.",
         advanced=("--log", "--proof-age", "--watch-lag", "--for", "--cases", "--heads")),
))  # fmt: skip
add(app, "report", runbook_page.report, runbook_page.REPORT_EPILOG, (
    Form(("--compare",), runbook_history.compare, runbook_history.COMPARE_EPILOG, "Put runs side by side."),
    Form(("--export",), runbook_page.export, runbook_page.EXPORT_EPILOG, "Hand a run to other tools."),
    Form(("--verify",), runbook_show.verify_journal, runbook_show.VERIFY_EPILOG, "Check a journal offline."),
))  # fmt: skip
add(app, "serve", runbook_page.serve, runbook_page.SERVE_EPILOG)
app.add_typer(runbook_traffic.app, name="traffic")
