"""The endpoints of a replay, and what must hold of them before the first statement is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from migverify.db.session import open_session
from migverify.model import Endpoint, Side
from migverify.workload.replay.clone import prove
from migverify.workload.replay.safety import Leave, read_only_mode, require_read_only


@dataclass(frozen=True, slots=True)
class Sides:
    """The endpoints of a replay by side, and their passwords by name. Without the source, the capture is the oracle."""

    endpoints: Mapping[Side, Endpoint]
    secrets: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Sides({', '.join(side.value for side in self.endpoints)})"


def inspect(
    sides: Sides, leave: Leave, marker: str | None, *, accept_write_grants: bool = False
) -> dict[str, dict[str, Any]]:
    """Return facts of each side, or refuse: writes need a proven clone on every side, reads a user who may not write.

    Parameters
    ----------
    marker
        ``workload.clone_marker`` of the configuration.
    accept_write_grants
        A replay that only reads may be run by a user who may write.

    Raises
    ------
    EndpointError
        a side is no proven clone, or does not answer; PrivilegeError where its user may write.
    """
    facts: dict[str, dict[str, Any]] = {}
    for side, endpoint in sides.endpoints.items():
        with open_session(endpoint, sides.secrets.get(endpoint.name), side=side) as session:
            told: dict[str, Any] = {
                "address": f"{endpoint.host}:{endpoint.port}", "version": session.version,
                "flavor": session.flavor.value,
            }  # fmt: skip
            if leave.writes or leave.ddl:
                proof = prove(session, marker)
                told["clone"] = f"{proof.name}: {proof.identity}"
            else:
                grants = require_read_only(session, accept_write_grants=accept_write_grants)
                told["may_write"] = grants.may_write
                told["unprotected"] = read_only_mode(session.flavor)[1]
            facts[side.value] = told
    return facts
