"""Lanes: what is said of one topic reaches a sink in its order, urgent or not, and nothing is lost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.runbook.announce import lanes
from migverify.runbook.announce.lanes import Lanes, Noted
from migverify.runbook.announce.pagerduty import action_of, dedup_key
from migverify.runbook.announce.sinks import Message, SinkError
from tests.unit.runbook_hooks import Scripted
from tests.waiting import wait_for

MOST_TRIES = 3
SINKS = "pager", "chat"


class Queue:
    """Lanes whose journal is a count of tries, over sinks that fail as they are told."""

    def __init__(self, failures: dict[str, list[bool]], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lanes, "FIRST_WAIT", 0.0)
        answers = {name: [SinkError("status 500") if fails else _take for fails in failures[name]] for name in SINKS}
        self.sinks = {name: Scripted(name, *answers[name]) for name in SINKS}
        self.messages: list[Message] = []
        self.tries = Counter[tuple[str, int]]()
        self.given_up: set[tuple[str, int]] = set()
        self.lanes = Lanes(self.sinks.values(), lambda of, _: self.messages[of], self._note)

    def _note(self, sink: str, of: int, problem: SinkError | None) -> Noted:
        self.tries[sink, of] += 1
        is_given_up = problem is not None and self.tries[sink, of] >= MOST_TRIES
        if is_given_up:
            self.given_up.add((sink, of))
        return Noted(is_open=problem is not None and not is_given_up, tries=self.tries[sink, of])

    def add(self, topic: str, what: str, *, urgent: bool) -> None:
        of = len(self.messages)
        self.messages.append(Message(f"run/{of}", "run", "", what, f"text {of}", 0.0, topic=topic))
        for sink in SINKS:
            self.lanes.add(sink, of, topic, urgent=urgent)

    def drain(self) -> None:
        def is_idle() -> bool:
            self.lanes.tick()
            return self.lanes.is_idle()

        wait_for(is_idle, "everything is sent or given up", every=0.0)

    def got(self, sink: str) -> list[int]:
        return [self.messages.index(message) for message in self.sinks[sink].got]


def _take() -> None:
    """Raise nothing: the sink takes the message."""


ADD = st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans())
STEPS = st.lists(st.one_of(ADD, st.just("tick"), st.just("drain")), max_size=25)
FAILURES = st.fixed_dictionaries({name: st.lists(st.booleans(), max_size=40) for name in SINKS})


@settings(max_examples=150, deadline=None)
@given(STEPS, FAILURES)
def test_a_topic_reaches_each_sink_in_its_order_and_nothing_is_lost(
    steps: list[tuple[str, bool] | str], failures: dict[str, list[bool]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        queue = Queue(failures, patch)
        for step in steps:
            if step == "tick":
                queue.lanes.tick()
            elif step == "drain":
                queue.drain()
            else:
                queue.add(step[0], "called" if step[1] else "done", urgent=bool(step[1]))
        queue.drain()
    for sink in SINKS:
        got = queue.got(sink)
        for topic in "abc":
            of_topic = [of for of in got if queue.messages[of].topic == topic]
            assert of_topic == sorted(of_topic), (sink, topic)
        expected = {of for of in range(len(queue.messages)) if (sink, of) not in queue.given_up}
        assert sorted(got) == sorted(expected), sink


def test_an_incident_is_not_resolved_after_it_was_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue({"pager": [True, True], "chat": []}, monkeypatch)
    for what in ("readiness missing", "readiness ok", "readiness missing"):
        queue.add("readiness/shop/prod/proof", what, urgent=what == "readiness missing")
    queue.drain()
    got = queue.sinks["pager"].got
    assert [action_of(one.what) for one in got] == ["trigger", "resolve", "trigger"]
    assert len({dedup_key(one) for one in got}) == 1


def test_what_is_urgent_overtakes_other_topics_with_what_its_own_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue({"pager": [], "chat": []}, monkeypatch)
    for topic, urgent in (("a", False), ("b", False), ("a", False), ("b", True)):
        queue.add(topic, "called", urgent=urgent)
    queue.drain()
    assert queue.got("pager") == [1, 3, 0, 2]
