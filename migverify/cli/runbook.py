"""``migverify runbook``: write down what is done, rehearse it with people, run it, and prove what happened."""

from __future__ import annotations

import typer

from migverify.cli import (
    runbook_cases,
    runbook_history,
    runbook_lint,
    runbook_page,
    runbook_people,
    runbook_preflight,
    runbook_run,
    runbook_show,
    runbook_traffic,
)

app = typer.Typer(no_args_is_help=True, help="Runbooks: lint, plan, preflight, run with people, status, journal.")

app.command(epilog=runbook_lint.LINT_EPILOG)(runbook_lint.lint)
app.command(epilog=runbook_lint.PLAN_EPILOG)(runbook_lint.plan)
app.command(epilog=runbook_lint.SCHEMA_EPILOG)(runbook_lint.schema)
app.command(epilog=runbook_preflight.EPILOG)(runbook_preflight.preflight)
app.command(epilog=runbook_history.READINESS_EPILOG)(runbook_history.readiness)
app.command(epilog=runbook_cases.EPILOG)(runbook_cases.cases)
app.command(epilog=runbook_run.EPILOG)(runbook_run.run)
app.command(epilog=runbook_show.STATUS_EPILOG)(runbook_show.status)
runbook_people.register(app)
app.command(epilog=runbook_history.COMPARE_EPILOG)(runbook_history.compare)
app.command(epilog=runbook_show.VERIFY_EPILOG)(runbook_show.verify_journal)
app.command(epilog=runbook_page.SERVE_EPILOG)(runbook_page.serve)
app.command(epilog=runbook_page.REPORT_EPILOG)(runbook_page.report)
app.command(epilog=runbook_page.EXPORT_EPILOG)(runbook_page.export)
app.add_typer(runbook_traffic.app, name="traffic")
