"""The first pass over audit CSV: where texts are cut, what ran inside another statement, where parts begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from migverify.spark.capture_audit import AuditSource, Lines, too_long
from migverify.spark.capture_bytes import Ints
from migverify.spark.capture_logs import Batch
from migverify.spark.capture_rows import Names, Rows
from migverify.spark.capture_times import Entry
from migverify.workload.capture import CaptureInput
from migverify.workload.formats.audit import SCAN, SYNTAX, Audit, AuditSurvey, Looks, OpenStatements
from migverify.workload.lines import BLOCK

_QUERY, _LOGIN, _LOGOUT = 0, 1, 2
_MISTAKE = b"1064"


def survey_audit(
    one: CaptureInput, form: Audit, borders: Sequence[int] = (), block: int = BLOCK,
    look: Callable[[Rows, Names], None] = lambda _rows, _names: None,
) -> tuple[AuditSurvey, list[Entry]]:  # fmt: skip
    """Look through a file; see ``migverify.workload.formats.audit.survey_of``, which comes to the same.

    Parameters
    ----------
    borders
        Offsets at which the file is to be cut, rising.
    look
        Takes in what a first pass tells of rows.

    Returns
    -------
    What was found, and for each border the first line that begins there or behind; none for those behind the last.
    """
    found, names = _Survey(form.longest), Names()
    entries: list[Entry] = []
    left = list(borders)
    last = newest = -1
    with AuditSource(one, form, 0, names, AuditSurvey(), block=block, light=True) as source:
        for batch in source.batches():
            lines = source.lines
            if lines is not None:
                found.take(lines, source.window.data, batch.begin)
                begins = lines.starts + batch.begin
                while left and (at := int(np.searchsorted(begins, left[0]))) < len(begins):
                    begin = int(begins[at])
                    entries.append(_entry(batch, begin, source.line - len(begins) + at, last, newest))
                    left.pop(0)
                    while left and left[0] <= begin:
                        left.pop(0)
            look(batch.rows, names)
            times = batch.rows.columns["time"]
            if len(times):
                last, newest = int(times[-1]), max(newest, int(times.max()))
    return found.told(), entries


def _entry(batch: Batch, begin: int, line: int, last: int, newest: int) -> Entry:
    times: Ints = batch.rows.columns["time"][batch.rows.columns["offset"] < begin]
    if len(times):
        last, newest = int(times[-1]), max(newest, int(times.max()))
    return Entry(begin, line, None, last, newest)


class _Survey:
    """What lines tell, in their order."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._looks = Looks()
        self._inside: dict[int, str] = {}
        self._sessions: dict[int, OpenStatements] = {}

    def told(self) -> AuditSurvey:
        return AuditSurvey(self._looks.limit, self._looks.most, self._inside)

    def take(self, lines: Lines, data: bytes, base: int) -> None:
        """Take in the lines of a block that begins at an offset."""
        rows: Ints = np.flatnonzero(lines.ok)
        columns = lines.columns
        session, query = columns["session"][rows], columns["number"][rows]
        kind = np.zeros(len(rows), np.int64)
        texts: dict[int, tuple[bytes, bool]] = {}
        odd: list[tuple[int, int, int, int, int]] = []
        for row in np.flatnonzero(~lines.ok).tolist():
            content = data[lines.starts[row] : lines.stops[row] + 1]
            match = None if too_long(content, self._longest) else SCAN.match(content.rstrip(b"\r\n"))
            if match is None:
                continue
            number, asked, text, code, login = match.groups()
            if login:
                odd.append((row, int(number), int(asked), _LOGOUT if login == b"DISCONNECT" else _LOGIN, -1))
            else:
                texts[row] = (text, code == _MISTAKE)
                odd.append((row, int(number), int(asked), _QUERY, len(text)))
        size = (lines.close - lines.text)[rows]
        if odd:
            more = np.array(odd, np.int64)
            rows = np.concatenate([rows, more[:, 0]])
            order = np.argsort(rows, kind="stable")
            session, query, kind, size = (
                np.concatenate([known, more[:, at]])[order]
                for at, known in enumerate((session, query, kind, size), start=1)
            )
            rows = rows[order]
        self._look(lines, data, rows, size, texts)
        self._follow(session, query, kind, lines.starts[rows] + base)

    def _look(self, lines: Lines, data: bytes, rows: Ints, size: Ints, texts: dict[int, tuple[bytes, bool]]) -> None:
        """Show the longest texts to ``Looks``: it passes over those that are shorter than the longest so far."""
        most = np.maximum.accumulate(np.concatenate([[self._looks.most], size]))[:-1]
        for at in np.flatnonzero((size >= most - 1) & (size >= 0)).tolist():
            row = int(rows[at])
            if row in texts:
                text, mistaken = texts[row]
            else:
                text = data[lines.text[row] : lines.close[row]]
                mistaken = lines.columns["errno"][row] == SYNTAX
            self._looks.take(len(text), mistaken, text)

    def _follow(self, session: Ints, query: Ints, kind: Ints, offset: Ints) -> None:
        """Follow the query ids of each session; mostly they rise."""
        if not len(session):
            return
        order = np.argsort(session, kind="stable")
        session, query, kind, offset = session[order], query[order], kind[order], offset[order]
        bounds = [0, *(np.flatnonzero(np.diff(session)) + 1).tolist(), len(session)]
        falls = np.concatenate([[0], np.cumsum((query[1:] <= query[:-1]) | (kind[1:] != _QUERY))])
        for first, behind in pairwise(bounds):
            number = int(session[first])
            state = self._sessions.get(number)
            rises = falls[behind - 1] == falls[first] and kind[first] == _QUERY
            if rises and (state is None or query[first] > state.last):
                if state is None:
                    state = self._sessions[number] = OpenStatements(False)
                state.extend(query[first:behind].tolist(), offset[first:behind].tolist())
                continue
            for asked, what, place in zip(
                query[first:behind].tolist(), kind[first:behind].tolist(), offset[first:behind].tolist(), strict=True
            ):
                if what != _QUERY:
                    self._sessions[number] = OpenStatements(what == _LOGIN)
                    continue
                if number not in self._sessions:
                    self._sessions[number] = OpenStatements(False)
                self._sessions[number].take(asked, place, self._inside)
