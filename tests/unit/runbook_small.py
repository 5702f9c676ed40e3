"""A small runbook as a file, with the folder it changes: for tests of the command line and of the autopilot."""

from __future__ import annotations

from pathlib import Path

HEAD = """\
version: runbook/v1
id: small
title: Stop and open writes of {{service}}
kind: rehearsal
parameters:
  service: {type: name, default: orders, description: Name of the service.}
environments:
  lab: {}
  prod: {production: true}
people:
  alice: {aliases: [al]}
  bob: {}
  carol: {}
  dana: {}
  erin: {}
roles:
  coordinator: {person: alice, backup: erin}
  dba: {person: bob}
  checker: {person: carol}
  decision_owner: {person: dana}
policy:
  sign_off_ttl: 20m
  readiness: {drills_min: 1, clean_last: 1, rollback_drills_min: 0}
"""

STEPS = """\
phases:
  - id: stop
    steps:
      - id: look
        kind: check
        title: Nothing is stopped yet
        dri: dba
        reviewer: checker
        time: {plan: 5s, max: 1m}
        expect:
          - {check: command.exit, run: "test ! -e stopped"}
      - id: freeze
        kind: command
        title: Stop writes
        instruction: Make the file by hand.
        dri: dba
        reviewer: checker
        approve: {min: 1, not: [dri], before: start}
        time: {plan: 5s, max: 1m}
        do: {run: "touch stopped", timeout: 20s}
        expect:
          - {check: command.exit, run: "test -e stopped"}
        repeat: yes
        rollback:
          do: {run: "rm stopped", timeout: 20s}
          instruction: Remove the file.
          verify:
            - {check: command.exit, run: "test ! -e stopped"}
          plan: 5s
          data_loss: none
  - id: decide
    steps:
      - id: go
        kind: decision
        title: Go, or go back
        instruction: Say so.
        dri: decision_owner
        reviewer: checker
        requires: [freeze]
        time: {plan: 5s}
      - id: open
        kind: manual
        title: Open writes
        instruction: Remove the file.
        dri: dba
        reviewer: checker
        time: {plan: 5s}
        expect:
          - {check: command.exit, run: "test ! -e stopped"}
"""


def write_small(folder: Path, steps: str = STEPS, head: str = HEAD) -> Path:
    """Write the runbook into a folder, and return its path; its commands work in the folder of the process."""
    path = folder / "small.yaml"
    path.write_text(head + steps)
    return path
