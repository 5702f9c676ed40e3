"""Readiness by the hour: evaluated again and again, and what changes is announced once."""
