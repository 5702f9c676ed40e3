"""What a runbook is, as a file: its shape, its rules, its plan."""
