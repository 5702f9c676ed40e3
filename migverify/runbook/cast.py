"""The people of one run by their names and roles. Pure: made when the run starts, changed only by promotions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook

__all__ = ["Cast", "make_cast"]


@dataclass(frozen=True, slots=True)
class Cast:
    """The people of a run.

    Parameters
    ----------
    names
        Every exact name and alias -> the person.
    roles
        A role of this kind of run -> who holds it: one person, the declared one until the backup is promoted.
    declared
        A role -> its person and its backup: who may be promoted to it.
    absent
        Roles that this kind of run does not have (``only``).
    """

    names: dict[str, str]
    roles: dict[str, tuple[str, ...]]
    declared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    def person(self, name: str) -> str | None:
        """Return whom a name means; None: nobody, or not for certain.

        The name has to be written as declared: one that only looks like it is nobody's.
        """
        return self.names.get(name)

    def holders(self, role_or_person: str) -> tuple[str, ...]:
        """Return who may act as a role now, or the person of that name; empty: nobody."""
        if role_or_person in self.roles:
            return self.roles[role_or_person]
        person = self.names.get(role_or_person)
        return (person,) if person is not None and role_or_person not in self.absent else ()

    def roles_of(self, person: str) -> tuple[str, ...]:
        """Return the roles a person may act in."""
        return tuple(role for role, holders in self.roles.items() if person in holders)

    def promote(self, role: str, person: str) -> Cast:
        """Return a cast in which a role is that person's, and nobody else's."""
        return replace(self, roles={**self.roles, role: (person,)})


def make_cast(runbook: Runbook, kind: RunKind) -> Cast:
    """Return who plays which part in a run of a kind; roles of other kinds are nobody's."""
    names = {name: person.name for person in runbook.people.values() for name in (*person.aliases, person.name)}
    declared, absent = dict[str, tuple[str, ...]](), set[str]()
    for role in runbook.roles.values():
        if role.only and kind not in role.only:
            absent.add(role.name)
            continue
        some = (names.get(name) for name in (role.person, role.backup) if name)
        declared[role.name] = tuple(person for person in some if person is not None)
    return Cast(names, {role: some[:1] for role, some in declared.items()}, declared, frozenset(absent))
