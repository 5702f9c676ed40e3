"""Which tables ``tables.exclude`` leaves out of a run: they are proved by nothing, so a report has to name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from migverify.config import Config, includes, is_excluded, is_in_scope, route, unmatched_excludes
from migverify.db.session import Session
from migverify.errors import PrivilegeError
from migverify.model import TableDef
from migverify.tables.overrides import refuse_unfit_excludes
from migverify.tables.pairs import Name, ask_table, shard_of


class ExcludedTables:
    """Collects, while the catalogs are listed, the tables that would be compared if they were not excluded."""

    def __init__(self, config: Config, chosen: Callable[[str, str], bool] | None) -> None:
        self._config = config
        self._chosen = chosen
        reverse = config.reverse
        # The table of a watch holds no rows of the migration, and may be made after the first verification.
        self._markers = {config.watch.marker, None if reverse is None else reverse.marker}
        self._there: set[Name] = set()
        self._left_out: set[Name] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are left out, by their names on the source."""
        return tuple(".".join(name) for name in sorted(self._left_out))

    def lists(self, database: str, table: str) -> bool:
        """Whether a table of a source is to be listed: it is in scope, or a pattern excludes it."""
        return is_in_scope(self._config, database, table) or is_excluded(self._config, database, table)

    def note(self, names: Iterable[Name]) -> list[Name]:
        """Note which of the listed tables of a source are excluded; return the others."""
        taken = []
        for name in names:
            if includes(self._config, *name):
                taken.append(name)
            else:
                self._note(name)
        return taken

    def note_others(self, names: Iterable[Name]) -> None:
        """Note what a source has beside tables: a pattern that excludes a view is not misspelled."""
        self._there.update(names)

    def note_target(self, names: Iterable[Name], sources: Mapping[str, Sequence[TableDef]]) -> None:
        """Note tables of the target, which the sources may lack, that an excluded table would have been routed to."""
        if not self._config.tables.exclude:
            return
        origins = {(shard_of(endpoint), one.ref.database) for endpoint, defs in sources.items() for one in defs}
        shards = {shard_of(endpoint) for endpoint in sources}
        for database, table in names:
            for shard, origin in origins | {(shard, database) for shard in shards}:
                leads_here = route(self._config, shard, origin, table) == (database, table)
                if leads_here and is_excluded(self._config, origin, table):
                    self._note((origin, table))

    def _note(self, name: Name) -> None:
        self._there.add(name)
        if ".".join(name) in self._markers:
            return
        if is_in_scope(self._config, *name) and (self._chosen is None or self._chosen(*name)):
            self._left_out.add(name)

    def refuse_misspelled(self, sessions: Sequence[Session]) -> None:
        """Refuse patterns that name one table which no server has; one that a user may not see may be there."""
        unfit = []
        for pattern in unmatched_excludes(self._config, self._there):
            if f"{pattern.database.literal}.{pattern.table.literal}" in self._markers:
                continue
            try:
                for session in sessions:
                    ask_table(session, str(pattern.database.literal), str(pattern.table.literal))
            except PrivilegeError:
                continue
            unfit.append(pattern)
        refuse_unfit_excludes(self._config, unfit)
