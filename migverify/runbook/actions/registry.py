"""Every action that a runbook can name."""

from __future__ import annotations

from importlib import import_module

from migverify.runbook.actions.action import Registry
from migverify.runbook.actions.builtin import built_in

__all__ = ["full_registry"]

_MODULES = (
    "actions.web", "actions.commands", "actions.rollback_loss", "actions.gates", "traffic.actions",
)  # fmt: skip
"""Modules with ``register(registry)``; imported when a registry is made, since ``--help`` needs none."""


def full_registry() -> Registry:
    """Return a registry with the built-in actions and all others.

    Raises
    ------
    UsageError
        two actions have one name.
    """
    registry = built_in()
    for name in _MODULES:
        import_module(f"migverify.runbook.{name}").register(registry)
    return registry
