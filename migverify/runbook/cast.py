"""The people of one run by their names and roles. Pure, computed once when the run starts."""

from __future__ import annotations

from dataclasses import dataclass

from migverify.runbook.model import Runbook, RunKind

__all__ = ["Cast", "make_cast"]


@dataclass(frozen=True, slots=True)
class Cast:
    """The people of a run. ``names`` maps every exact name and alias to a person; ``roles`` a role to its holders."""

    names: dict[str, str]
    roles: dict[str, tuple[str, ...]]

    def person(self, name: str) -> str | None:
        """Return whom a name means; None: nobody, or not for certain.

        The name has to be written as declared: one that only looks like it is nobody's.
        """
        return self.names.get(name)

    def holders(self, role_or_person: str) -> tuple[str, ...]:
        """Return who may act as a role (person, then backup), or the person of that name."""
        if role_or_person in self.roles:
            return self.roles[role_or_person]
        person = self.names.get(role_or_person)
        return (person,) if person is not None else ()

    def roles_of(self, person: str) -> tuple[str, ...]:
        """Return the roles a person may act in."""
        return tuple(role for role, holders in self.roles.items() if person in holders)


def make_cast(runbook: Runbook, kind: RunKind) -> Cast:
    """Return who plays which part in a run of a kind; roles of other kinds are nobody's."""
    names = {name: person.name for person in runbook.people for name in (*person.aliases, person.name)}
    held = {}
    for role in runbook.roles:
        if not role.only or kind in role.only:
            some = (names.get(name) for name in (role.person, role.backup) if name)
            held[role.name] = tuple(person for person in some if person is not None)
    return Cast(names, held)
