"""Runbooks: a timed executor for drills, cutover, rollback and disaster recovery."""
