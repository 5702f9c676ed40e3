"""The page in a real Chromium: it follows a run, says who is waited for, and never shows old things as new."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migverify.report.html import served_page
from migverify.runbook.events import EventKind
from migverify.runbook.page.report_view import as_report
from migverify.runbook.page.run_report import report_of
from migverify.runbook.page.serve import PageServer
from migverify.runbook.page.view import Pulse
from migverify.runbook.page.watch_run import Watcher
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from tests.db.chromium import Browser, Page
from tests.unit.runbook_places import data_of, rewrite
from tests.unit.runbook_stories import Story, answered, in_both_directions, in_freeze, lost, with_loss_guard

pytestmark = pytest.mark.db
_K = EventKind
Serve = Callable[[Story], PageServer]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as ended:

        def begin(story: Story) -> PageServer:
            room = RunStore(story.record.folder.parent)
            story.clock.runs = True
            server = PageServer(
                Watcher(room, story.status.run, clock=story.clock, fresh=0.1), port=0,
                report=lambda: served_page(as_report(report_of(room, "last", clock=story.clock))),
            )  # fmt: skip
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            ended.callback(server.server_close)
            ended.callback(thread.join)
            ended.callback(server.shutdown)
            return server

        yield begin


def opened(browser: Browser, server: PageServer, width: int = 1366, height: int = 768, *, dark: bool = False) -> Page:
    page = browser.page().size(width, height, dark=dark, mobile=width < 500).go(server.url)
    page.until("!document.body.classList.contains('loading')")
    return page


def calm(page: Page, server: PageServer) -> None:
    """Nothing was complained about, and nothing asked of anybody else."""
    page.ask("1")
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith((server.url, "data:"))] == []


def test_the_page_follows_a_run(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    assert page.text("#state .word").upper() == "RUNNING"
    assert "Stop writes on the source" in page.text("#now")
    assert page.ask("document.querySelector('.step.current').dataset.step") == "freeze"
    assert "The executor works" in page.text("#who")
    assert "carol" in page.text("#who .then")
    story.end("freeze", 1, review=False)
    page.until("document.querySelector('[data-step=freeze]').dataset.state === 'awaiting review'")
    assert "carol" in page.text("#who .person")
    assert "ack freeze" in page.text("#who code")
    story.says(machine.accept, "carol", "freeze")
    page.until("document.querySelector('[data-step=freeze]').dataset.state === 'done'")
    page.until("document.querySelector('.step.current').dataset.step === 'drained'")
    assert "The executor works" in page.text("#who")  # a gate that reads starts by itself while writes are stopped
    assert "freeze" not in page.ask("document.title")
    assert "Phase stop-writes" in page.text("#sentence")
    calm(page, server)


def test_a_hold_stands_in_big_letters(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 1).begin("drained")
    server = serve(story)
    page = opened(browser, server, 1920, 1080)
    before = page.ask("getComputedStyle(document.getElementById('top')).backgroundColor")
    story.guard("lag", "fail", "12.4 - more than 5", 12.4).does(_K.HELD, guard="lag", reason="guard lag fails: 12.4")
    page.until("document.querySelector('#state .word').textContent === 'held'")
    assert page.text("#state .word") == "HELD"
    assert page.ask("parseFloat(getComputedStyle(document.getElementById('state')).fontSize)") >= 60
    assert page.ask("document.getElementById('state').getBoundingClientRect().bottom") < 200
    assert "guard lag fails" in page.text("#reasons")
    assert page.ask("getComputedStyle(document.getElementById('top')).backgroundColor") != before
    assert page.ask("document.title").startswith("HELD")
    assert "fail" in page.text("#guards .alert")
    assert "lag" in page.text("#guards .alert")
    calm(page, server)


LOSS = (
    "[...document.querySelectorAll('#clocks .tile')].find((one) => one.textContent.startsWith('Loss if rolled back'))"
)


def test_the_loss_of_a_rollback_is_beside_the_moment_to_decide(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = lost(with_loss_guard(tmp_path), behind=3.0)
    server = serve(story)
    page = opened(browser, server)
    page.until(f"!!{LOSS}")
    words = page.ask(f"{LOSS}.textContent")
    for part in ("12 keys", "oldest write 0:34", "1250.00 EUR", "as of ", "0:0", " ago"):
        assert part in words, words
    assert "old:" not in words
    titles = page.ask("[...document.querySelectorAll('#clocks .tile h3')].map((one) => one.textContent)")
    assert "Decide" in titles[titles.index("Loss if rolled back") - 1]
    # Its age counts up by itself.
    page.until(f"/0:0[6-9]|0:[1-9]/.test({LOSS}.querySelector('.clock').textContent)")
    # What is too much, and what is not known in full, does not look like what is acceptable.
    lost(story, "fail", keys=900)
    page.until(f"{LOSS}.textContent.includes('900 keys')")
    assert "too large" in page.ask(f"{LOSS}.textContent")
    assert "bad" in page.ask(f"{LOSS}.className")
    lost(story, "inconclusive", keys=1)
    page.until(f"{LOSS}.textContent.includes('≥ 1 key')")
    assert "not all is known" in page.ask(f"{LOSS}.textContent")
    # An old value looks old: struck out, and said.
    lost(story, keys=7, behind=178.0)
    page.until(f"{LOSS}.textContent.includes('7 keys')")
    page.until(f"{LOSS}.textContent.includes('! old:')")
    assert page.ask(f"getComputedStyle({LOSS}.querySelector('s')).textDecorationLine") == "line-through"
    assert "bad" in page.ask(f"{LOSS}.className")
    calm(page, server)


def test_both_directions_are_one_view(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_both_directions(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    page.until("document.querySelectorAll('#directions li').length === 3")
    assert page.text("#directions li[data-direction=forward] .chip").strip().endswith("not asked")
    answered(story, armed="fail")
    page.until("document.querySelector('#directions li.alert') !== null")
    assert "2 rows" in page.text("#directions li.alert")
    assert page.ask("document.querySelector('#directions li.alert').dataset.direction") == "hand-over"
    assert "as of binlog.000412:8812" in page.text("#directions li[data-direction=forward]")
    assert "as of tso:462190000000000000" in page.text("#directions li[data-direction=reverse]")
    calm(page, server)


def test_a_run_that_asks_about_no_direction_shows_none(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    page = opened(browser, serve(in_freeze(tmp_path)))
    assert page.ask("document.getElementById('directions').hidden") is True


def test_an_announcement_that_failed_is_red_and_first(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    first = "document.querySelector('#said li')"
    assert page.ask(f"{first}.dataset.state") == "failed"
    red = page.ask(f"getComputedStyle({first}.querySelector('.chip')).color")
    parts = [int(one) for one in red.removeprefix("rgb(").rstrip(")").split(",")]
    assert parts[0] > 2 * max(parts[1:]), red
    assert "failed" in page.text("#said li .chip"), "the color is not the only sign"
    assert "503" in page.text("#said li")
    assert page.ask("document.querySelectorAll('#said li[data-state=sent]').length") == 2
    assert "not delivered" in page.text("#warnings")
    calm(page, server)


def test_clocks_run_without_being_drawn_anew(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    page.ask("window.before = document.querySelector('#clocks .tile'); 1")
    left = page.text("#clocks .loud .clock")
    step = page.text("#now .big .clock")
    page.until(f"document.querySelector('#clocks .loud .clock').textContent !== {left!r}")
    page.until(f"document.querySelector('#now .big .clock').textContent !== {step!r}")
    assert page.ask("window.before === document.querySelector('#clocks .tile')")
    page.until("parseInt(document.querySelector('#clocks .loud .clock').textContent) >= 0")
    later = page.text("#clocks .loud .clock")
    (first, then) = (int(m) * 60 + int(s) for m, s in (one.removesuffix(" left").split(":") for one in (left, later)))
    assert then < first < 300, "it counts the budget of 300 s down"


@pytest.mark.parametrize(
    ("width", "height", "dark"), [(360, 740, True), (768, 1024, False), (1366, 768, True), (1920, 1080, False)]
)
def test_it_fits_every_screen(
    browser: Browser, serve: Serve, tmp_path: Path, width: int, height: int, dark: bool
) -> None:
    story = in_freeze(tmp_path).end("freeze", 1).begin("drained")
    story.guard("lag", "fail", "12.4 - more than 5", 12.4).does(_K.HELD, guard="lag", reason=60 * "x")
    server = serve(story)
    page = opened(browser, server, width, height, dark=dark)
    page.ask("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.until("document.querySelectorAll('.facts').length === 16")
    assert page.ask("document.documentElement.scrollWidth") <= width
    wide = page.ask(
        "[...document.querySelectorAll('body *')].filter((one) => one.offsetWidth"
        f" && getComputedStyle(one).position !== 'absolute' && one.getBoundingClientRect().right > {width} + 1)"
        ".map((one) => one.outerHTML.slice(0, 80))"
    )
    assert wide == []
    # Contrast of the page's texts against what is behind them, as WCAG 2.2 computes it: at least AA.
    assert page.ask(CONTRAST) == []
    background = page.ask("getComputedStyle(document.body).backgroundColor")
    assert (int(background.removeprefix("rgb(").split(",")[0]) < 64) is dark
    calm(page, server)


CONTRAST = """
(() => {
  const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const linear = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (one) => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers[layers.length - 1][3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const bad = [];
  for (const one of document.querySelectorAll('main *, header *, footer *')) {
    const words = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!one.offsetWidth || !words || one.closest('.na, .idle')) continue;
    const style = getComputedStyle(one), back = behind(one), front = over(parse(style.color), back);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a), ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const wanted = size >= 24 || (size >= 18.66 && bold) ? 3 : 4.5;
    if (ratio < wanted) bad.push(one.className + ' ' + one.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return bad;
})()
"""


def test_a_step_opens_with_its_evidence_and_stays_open(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 1)
    server = serve(story)
    page = opened(browser, server)
    page.ask("document.querySelector('[data-step=freeze] summary').click()")
    page.until("document.querySelector('[data-step=freeze] .facts')")
    facts = page.text("[data-step=freeze] .facts")
    assert "carol approved done" in facts
    assert "not signed" in facts
    assert "./cutover.sh freeze proved" in facts
    page.ask("document.querySelector('[data-step=freeze] summary').focus()")
    story.says(machine.call, "alice", "drained")
    page.until("document.querySelector('[data-step=drained]').dataset.state === 'called'")
    assert page.ask("document.querySelector('[data-step=freeze]').open")
    assert page.ask("document.activeElement.dataset.focus") == "freeze"


def test_a_server_that_is_gone_is_said_large(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    assert page.ask("document.getElementById('lost').hidden")
    host, port = server.host, server.server_port
    server.shutdown()
    server.server_close()
    page.until("!document.getElementById('lost').hidden")
    assert "No connection" in page.text("#lost")
    assert page.ask("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    shown = page.text("#now .big .clock")
    page.until("document.getElementById('lost-for').textContent !== '' && performance.now() > 0")
    assert page.text("#now .big .clock") == shown, "what is old does not tick on"
    again = PageServer(Watcher(RunStore(tmp_path), clock=story.clock, fresh=0.1), host, port)
    thread = threading.Thread(target=again.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        page.until("document.getElementById('lost').hidden")
        assert page.text("#state .word") == "RUNNING"
    finally:
        again.shutdown()
        thread.join()
        again.server_close()


def test_a_damaged_journal_leaves_nothing_of_the_old_state(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    run = story.status.run
    rewrite(tmp_path, run, data_of(tmp_path, run).replace(b"alice", b"alicE", 40))
    page.until("document.getElementById('top').dataset.state === 'damaged'")
    assert "Journal damaged" in page.text("#problem")
    assert page.ask("document.getElementById('main').hidden")
    text = page.ask("document.body.innerText")
    assert "RUNNING" not in text
    assert "freeze" not in text
    red = page.ask("getComputedStyle(document.getElementById('top')).backgroundColor")
    assert red == "rgb(168, 18, 27)"
    calm(page, server)


def test_a_run_that_begins_later_appears(browser: Browser, tmp_path: Path) -> None:
    server = PageServer(Watcher(RunStore(tmp_path / "runs"), fresh=0.1), port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        page = opened(browser, server)
        assert "No run yet" in page.text("#problem")
        Story(tmp_path / "runs")
        page.until("document.querySelector('#state .word').textContent === 'running'")
        assert "Nobody drives this run" in page.text("#stale")
        assert page.ask("!document.getElementById('stale').hidden && document.getElementById('problem').hidden")
        calm(page, server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_executor_without_a_sign_of_life_is_said_large(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = opened(browser, server)
    story.wait(300)
    page.until("!document.getElementById('stale').hidden")
    assert "No heartbeat of the executor since" in page.text("#stale")


@pytest.mark.parametrize(
    ("state", "width", "height"),
    [("silent", 360, 740), ("gone", 1280, 800), ("late", 1280, 800), ("failed back", 360, 740)],
)
def test_states_of_warning_fit_and_say_what_nobody_does(
    browser: Browser, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, width: int, height: int
) -> None:
    story = in_freeze(tmp_path)
    if state in ("silent", "gone"):
        gone = "its process has ended" if state == "gone" else ""
        beat = story.clock.now().wall - 41
        monkeypatch.setattr(Watcher, "_pulse", lambda *_: Pulse(beat, 35.0, gone))
    elif state == "late":
        story.wait(45)
    else:
        back_after_a_failure(story)
    server = serve(story)
    page = opened(browser, server, width, height)
    page.until("document.querySelector('#who').textContent.length > 5")
    if PICTURES:
        page.picture(Path(PICTURES) / f"{state.replace(' ', '-')}-{width}.png", whole=True)
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask(CONTRAST) == []
    said = page.text("body")
    if state in ("silent", "gone"):
        assert "The executor works" not in said
        assert page.ask("document.querySelectorAll('#clocks .loud').length") == 0
        down = page.ask(
            "[...document.querySelectorAll('#clocks .clock[data-runs=down]')]"
            ".map((one) => one.closest('.tile').innerText)"
        )
        assert [one for one in down if not one.upper().startswith(("WINDOW", "DECIDE BY"))] == []
        assert "Writes are stopped and" in page.text("#reasons")
    if state == "silent":
        assert "The executor is silent" in page.text("#who")
        assert "No heartbeat of the executor since" in said
    if state == "gone":
        assert "migverify runbook handover --takeover 'its process has ended' --as" in page.text("#who")
    if state == "failed back":
        assert page.ask("document.getElementById('top').dataset.state") == "rolled back after failures"
    calm(page, server)


PICTURES = os.environ.get("MIGVERIFY_TEST_PICTURES", "")
"""A folder for pictures of these states; empty: none are taken."""


def back_after_a_failure(story: Story) -> None:
    story.does(_K.FAILED, "freeze", reason="exit code 1")
    story.says(machine.rollback, "dana", "freeze failed")
    checks = [{"action": "command.exit", "state": "pass", "text": "exit 0", "value": 0}]
    for id_ in ("freeze", "reverse"):
        story.does(_K.ROLLBACK_INTENT, id_, action="command", arguments={})
        story.does(_K.ROLLBACK_EFFECT, id_, ok=True, text="undone")
        story.does(_K.ROLLBACK_VERIFIED, id_, ok=True, checks=checks)
    story.does(_K.RUN_ENDED, state="rolled back", reason="freeze failed")


def test_a_rollback_and_the_end_of_a_run(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 1)
    server = serve(story)
    page = opened(browser, server)
    story.says(machine.rollback, "dana", "errors above 2 %")
    page.until("document.querySelector('#state .word').textContent === 'rolling back'")
    checks = [{"action": "command.exit", "state": "pass", "text": "exit 0", "value": 0}]
    for id_ in ("freeze", "reverse"):
        story.does(_K.ROLLBACK_INTENT, id_, action="command", arguments={})
        story.does(_K.ROLLBACK_EFFECT, id_, ok=True, text="undone")
        story.does(_K.ROLLBACK_VERIFIED, id_, ok=True, checks=checks)
    page.until("document.querySelector('[data-step=freeze] .undo').textContent.includes('undone, verified')")
    story.does(_K.RUN_ENDED, state="rolled back", reason="errors above 2 %")
    page.until("document.querySelector('#state .word').textContent === 'rolled back'")
    assert "errors above 2 %" in page.text("#reasons")
    assert "Nobody" in page.text("#who")
    calm(page, server)


def test_the_page_asks_for_less_motion_and_speaks_to_readers(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 1, review=False).wait(200)
    server = serve(story)
    page = opened(browser, server)
    page.until("document.querySelector('.act.overdue .waits')")
    moving = "getComputedStyle(document.querySelector('.act.overdue .waits')).animationName"
    assert page.ask(moving) == "beat"
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert page.ask(moving) == "none"
    assert page.ask("document.getElementById('sentence').getAttribute('aria-live')") == "polite"
    assert page.ask("document.querySelectorAll('[role=alert]').length") == 3
    unnamed = "[...document.querySelectorAll('svg[role=img]')].filter((one) => !one.getAttribute('aria-label')).length"
    assert page.ask(unnamed) == 0
    assert page.ask(
        "[...document.querySelectorAll('section')].every((one) => one.matches('[aria-labelledby], [aria-label]'))"
    )


def test_the_report_is_a_page_without_a_script(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    server = serve(story)
    page = browser.page().size(360, 740, mobile=True).go(f"{server.url}report.html")
    assert "RUNNING" in page.text("h1")
    assert page.ask("document.documentElement.scrollWidth") <= 360
    assert page.ask("document.scripts.length") == 0
    calm(page, server)
