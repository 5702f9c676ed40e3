"use strict";
// Draws /view.json. A part is drawn anew only when what it shows has changed; clocks tick by themselves between.
(function () {
  const POLL = 1000, LOST = 4000;
  const theme = new URLSearchParams(location.search).get("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  const $ = (id) => document.getElementById(id);
  const SYMBOLS = {
    running: "▶", "ready checked": "▶", held: "II", completed: "✓", dry: "◇", "rolled back": "↩",
    "aborted, all undone and verified": "■", "aborted, not all undone": "✗", "failed past the point of no return": "✗", damaged: "✗", waiting: "○",
  };
  const STEPS = {
    pending: ["·", "plain"], "not applicable": ["–", "plain"], ready: ["○", "busy"], called: ["◎", "busy"],
    running: ["▶", "busy"], verifying: ["▶", "busy"], "awaiting review": ["◆", "warn"], done: ["✓", "good"], dry: ["◇", "plain"],
    failed: ["✗", "bad"], "timed out": ["✗", "bad"], inconclusive: ["?", "bad"], unknown: ["?", "bad"], waived: ["≈", "warn"],
  };
  const UNDO = {
    "none needed": "plain", armed: "good", expired: "warn", running: "busy", "undone, verified": "good",
    "undone, not verified": "bad", failed: "bad",
  };
  const ANSWER = { pass: ["✓", "good"], fail: ["✗", "bad"], inconclusive: ["?", "bad"], "not asked": ["·", "plain"] };
  const SENT = { sent: ["✓", "good"], queued: ["…", "plain"], failed: ["✗", "bad"], "given up": ["✗", "bad"] };

  let view = null, etag = null, offset = 0, seen = 0, begun = performance.now();
  const drawn = {}, open = new Set(), closed = new Set();

  // -- small things ---------------------------------------------------------------------------------------------
  function el(tag, attributes, ...children) {
    const svg = tag === "svg" || tag === "rect" || tag === "line" || tag === "title";
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== "") made.append(child);
    return made;
  }
  const now = () => Date.now() / 1000 + offset;
  const time = (wall, seconds) => new Date(wall * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: seconds === false ? undefined : "2-digit", hourCycle: "h23" });
  // The zone of every time on the page, as of the run's start.
  const zone = () => new Intl.DateTimeFormat([], { timeZoneName: "short" }).formatToParts(new Date(view.started * 1000)).find((one) => one.type === "timeZoneName").value;
  function span(seconds) {
    const sign = seconds < 0 ? "−" : "", whole = Math.floor(Math.abs(seconds) + 1e-6);
    const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = String(whole % 60).padStart(2, "0");
    return sign + (h ? h + ":" + String(m).padStart(2, "0") : m) + ":" + s;
  }
  function value(clock) {
    if (clock.zero === null) return clock.seconds;
    return clock.runs === "up" ? now() - clock.zero : clock.zero - now();
  }
  function ticking(clock, suffix, over) {
    if (!clock) return null;
    const made = el("span", { class: "clock", "data-runs": clock.runs, "data-suffix": suffix || "", "data-over": over || "" });
    if (clock.zero !== null) made.dataset.zero = clock.zero; else made.dataset.seconds = clock.seconds;
    if (!clock.exact) made.title = "by wall clocks, which may have been set meanwhile";
    show(made);
    return made;
  }
  function show(made) {
    const data = made.dataset;
    let text;
    if (data.zero === undefined) text = span(Number(data.seconds));
    else {
      const left = data.runs === "up" ? now() - Number(data.zero) : Number(data.zero) - now();
      // A countdown that is over counts what it is over by.
      text = data.runs === "up" ? span(Math.max(0, left)) : left >= 0 ? span(Math.ceil(left)) : span(-left) + " " + (data.over || "over");
      if (data.runs === "down" && left < 0) { if (made.textContent !== text) made.textContent = text; return; }
    }
    text += data.suffix;
    if (made.textContent !== text) made.textContent = text;
  }
  function chip(text, tone, symbol) {
    return el("span", { class: "chip " + tone }, symbol ? el("span", { "aria-hidden": "true" }, symbol + " ") : "", text);
  }
  // Draws a part anew only where its data changed, and keeps what a reader had opened and where he was.
  function draw(id, data, build) {
    const key = JSON.stringify(data);
    if (drawn[id] === key) return;
    drawn[id] = key;
    const body = $(id).querySelector(".body") || $(id);
    const focused = document.activeElement && body.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    body.replaceChildren(...[build()].flat().filter(Boolean));
    if (focused) { const again = body.querySelector('[data-focus="' + CSS.escape(focused) + '"]'); if (again) again.focus(); }
  }
  function text(id, words) { if ($(id).textContent !== words) $(id).textContent = words; }
  const pnr = (step) => "point of no return" + (step.point_of_no_return === "soft" ? " (data loss)" : "");
  const tone = (step) => (STEPS[step.state] || ["?", "bad"]);
  const stepOf = (id) => view.steps.find((one) => one.id === id);
  const secondsOf = (step) => step.clock ? value(step.clock) : step.took;

  // -- parts ----------------------------------------------------------------------------------------------------
  function header() {
    const top = $("top");
    const shown = view.alarm ? "undriven" : view.state === "rolled back" && view.failures ? "rolled back after failures" : view.state;
    top.dataset.state = shown;
    text("label", view.label + (view.autopilot ? " · autopilot" : ""));
    $("label").classList.toggle("live", view.kind === "live");
    text("title", view.title);
    text("where", view.environment + (view.production ? " (production)" : "") + " · " + view.run);
    const h1 = $("state");
    const undoing = view.undo.order.length > 0 && !view.over;
    const word = undoing ? "rolling back" : view.state === "ready checked" ? "ready" : view.state;
    headline(undoing ? "rolled back" : view.state, word);
    draw("hold", [view.state, view.hold, undoing], () => view.hold && !undoing ? ticking(view.hold) : null);
    draw("reasons", [view.alarm, view.reasons], () => [view.alarm, ...view.reasons].filter(Boolean).map((one) => el("li", {}, one)));
    draw("elapsed", [view.clock, view.started], () => [el("b", {}, ticking(view.clock)), " since " + time(view.started) + " " + zone()]);
    text("sentence", view.sentence);
    document.title = word.toUpperCase() + " · " + (view.current[0] || view.phase) + " · " + view.label;
    icon(shown);
  }
  function headline(state, word) {
    const h1 = $("state"), symbol = h1.querySelector(".symbol");
    // The two bars of a pause have no good letter in most fonts.
    if (state === "held") symbol.replaceChildren(el("svg", { viewBox: "0 0 10 10" }, el("rect", { x: 1, width: 3, height: 10 }), el("rect", { x: 6, width: 3, height: 10 })));
    else symbol.textContent = SYMBOLS[state] || "?";
    h1.querySelector(".word").textContent = word;
    h1.classList.toggle("long", word.length > 12);
  }
  function icon(state) {
    const color = state === "running" ? "%2314509e" : state === "held" || state === "rolled back after failures" ? "%23d98200" : state === "completed" || state === "rolled back" ? "%230b6b32" : "%23a8121b";
    const href = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'><rect width='8' height='8' rx='2' fill='" + color + "'/></svg>";
    if ($("icon").getAttribute("href") !== href) $("icon").setAttribute("href", href);
  }
  function gauge(seconds, plan, most, clock, kind) {
    const end = Math.max((most || 0) * 1.06, (plan || 0) * 1.25, seconds * 1.05, 1);
    const bar = el("svg", { class: "gauge " + kind, viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      el("rect", { class: "track", width: 1000, height: 10 }),
      el("rect", { class: "fill", width: Math.max(0, Math.min(1000, 1000 * seconds / end)), height: 10, "data-grow": clock && clock.zero !== null ? clock.zero : null, "data-end": end, "data-down": clock && clock.runs === "down" ? "1" : null }));
    for (const [at, name] of [[plan, "tick"], [most, "tick max"]])
      if (at && at < end * 1.0001) bar.append(el("line", { class: name, x1: Math.min(999, 1000 * at / end), x2: Math.min(999, 1000 * at / end), y1: 0, y2: 10 }));
    return bar;
  }
  const late = (step) => step.late === "max" ? "bad" : step.late === "plan" ? "warn" : tone(step)[1] === "plain" ? "busy" : tone(step)[1];
  function stepNow(step) {
    const phase = view.phases.findIndex((one) => one.id === step.phase) + 1, seconds = secondsOf(step), kind = late(step), [symbol, shade] = tone(step);
    const undoing = view.undo.order.find((one) => one.step === step.id);
    return el("div", { class: "stepnow " + (undoing ? "warn" : kind) },
      el("div", { class: "line" }, el("span", { class: "dim" }, step.phase + " · phase " + phase + " of " + view.phases.length),
        undoing ? chip("being rolled back: " + undoing.state, "warn", "↩") : chip(step.state, shade, symbol),
        view.state === "held" && !undoing ? chip("held", "warn", "II") : null,
        step.attempt > 1 ? chip("attempt " + step.attempt, "warn") : null,
        step.point_of_no_return ? chip(pnr(step), "bad", "!") : null,
        step.write_stop ? chip(step.write_stop === "begin" ? "writes stop here" : "writes open here", "warn") : null),
      el("h3", {}, step.title || step.id),
      el("p", { class: "mono dim" }, step.id + (step.title ? "" : "") + " · " + step.kind),
      undoing ? (step.undo.clock ? [el("div", { class: "against" }, el("span", { class: "big num" }, ticking(step.undo.clock)), el("span", {}, step.undo.plan !== null ? "plan " + span(step.undo.plan) : "no plan")), gauge(value(step.undo.clock), step.undo.plan, null, step.undo.clock, "warn")] : null) :
      seconds !== null ? [
        el("div", { class: "against" }, el("span", { class: "big num" }, step.clock ? ticking(step.clock) : span(seconds)),
          el("span", {}, step.plan !== null ? "plan " + span(step.plan) : "no plan", step.maximum !== null ? " · at most " + span(step.maximum) : "",
            step.late === "max" ? el("b", {}, " · too long") : step.late === "plan" ? el("b", {}, " · late") : "")),
        gauge(seconds, step.plan, step.maximum, step.clock, kind)] :
        el("p", {}, step.plan !== null ? "planned for " + span(step.plan) + (step.maximum !== null ? ", at most " + span(step.maximum) : "") : "without a plan"),
      step.reason ? el("p", { class: "reason" }, step.reason) : null,
      step.missing && step.state !== "awaiting review" ? el("p", { class: "wants" }, step.missing) : null,
      step.instruction && ["called", "running", "ready"].includes(step.state) ? el("p", { class: "instruction" }, step.instruction) : null);
  }
  function nowPart() {
    const some = view.current.map(stepOf);
    const next = view.undo.order.length ? view.undo.order.filter((one) => !view.current.includes(one.step)).map((one) => ({ id: one.step, back: one.state, who: one.who })) : view.over ? [] : view.steps.filter((one) => one.forecast_start !== null && !view.current.includes(one.id)).sort((a, b) => a.forecast_start - b.forecast_start).slice(0, some.length > 1 ? 2 : 4);
    draw("now", [view.state, view.standing, view.unverified, some, next, view.undo.order, view.phases.length, view.over], () => {
      if (view.over) return [el("p", {}, "The run is over: " + view.passed + " of " + view.applicable + " steps passed, in " + span(view.clock.seconds) + "."),
        view.standing.length ? el("p", { class: "standing bad" }, "✗ Effects that were not rolled back, or may not be: " + view.standing.join(", ")) : null,
        view.unverified.length ? el("p", {}, "No rollback verifies what these did: " + view.unverified.join(", ")) : null];
      if (!some.length) return el("p", {}, "No step is ready.");
      const parts = some.slice(0, 3).map(stepNow);
      if (some.length > 3) parts.push(el("p", { class: "more" }, "and " + (some.length - 3) + " more: " + some.slice(3, 12).map((one) => one.id).join(", ")));
      if (next.length) parts.push(el("div", { class: "next" }, el("h3", {}, view.undo.order.length ? "To be rolled back" : "Next"), el("ul", {}, next.map((one) => one.back ? el("li", {}, chip(one.back, UNDO[one.back] || "plain", "↩"), el("b", {}, one.id), el("span", { class: "dim" }, one.who)) : el("li", {},
        el("span", { class: "num dim" }, "~" + time(view.started + one.forecast_start)), el("b", {}, one.id), el("span", { class: "dim" }, (one.dri_people[0] || "nobody") + (one.plan !== null ? ", " + span(one.plan) : "")))))));
      return parts;
    });
  }
  function whoPart() {
    draw("who", [view.acts, view.executor.state], () => {
      if (!view.acts.length) return el("p", {}, view.over ? "Nobody: the run is over." : "Nobody has anything to do.");
      return view.acts.map((act) => {
        const calm = act.role === "executor";
        const name = calm ? { alive: "The executor works", silent: "The executor is silent" }[view.executor.state] || "The executor" : act.person || (act.tasks[0].several > 1 ? "Two persons" : "Anybody");
        return el("div", { class: "act" + (calm ? view.executor.state === "silent" ? " bad" : " calm" : "") + (act.overdue ? " overdue bad" : "") },
          el("p", { class: "person" }, name),
          calm ? null : el("p", { class: "role" }, [act.role.replace(/_/g, " "), act.others.length ? "or " + act.others.join(", ") : "", act.backup ? "backup " + act.backup : ""].filter(Boolean).join(" · ")),
          el("ul", {}, act.tasks.map((task) => el("li", { class: task.choice ? "choice" : "" },
            el("span", { class: "does" }, task.does), 
            task.clock ? el("span", { class: "waits" }, calm ? " · " : act.overdue ? " · ! waiting " : " · ", ticking(task.clock)) : "",
            task.command ? el("code", {}, task.command) : "", act.overdue && task.promote ? [el("span", { class: "dim" }, "no answer? promote " + act.backup + ": "), el("code", {}, task.promote)] : ""))),
          act.tasks.filter((task) => task.then).slice(0, 2).map((task) => el("div", { class: "then" }, el("p", { class: "role" }, "next"),
            el("p", { class: "person" }, task.then.person), el("p", {}, el("span", { class: "role" }, task.then.role.replace(/_/g, " ")), " · " + task.then.does))));
      });
    });
  }
  function tile(title, kind, big, words, extra) {
    return el("div", { class: "tile " + kind }, el("h3", {}, title), el("b", {}, big), el("p", {}, words), extra || null);
  }
  // What is old is no statement about now: it is struck out, and says how old it is.
  function lossTile(loss, old) {
    const least = loss.state === "inconclusive" ? "≥ " : "", known = loss.keys !== null;
    const big = known ? least + loss.keys.toLocaleString("en-US") + (loss.keys === 1 ? " key" : " keys") : "not known";
    const facts = [loss.oldest === null ? "" : "oldest write " + span(loss.oldest), ...loss.at_risk.map(([currency, sum]) => sum + " " + currency)].filter(Boolean).join(" · ");
    const kind = old || loss.state === "fail" ? "bad" : loss.state === "pass" ? "plain" : "warn";
    return tile("Loss if rolled back", kind + (known ? "" : " words"), old ? el("s", {}, big) : big,
      [facts, facts ? el("br") : "", old ? el("strong", {}, "! old: ") : "", (loss.as_of ? "as of " + time(loss.clock.zero) : "answered") + ", ", ticking(loss.clock, " ago"),
        old ? "" : loss.state === "fail" ? el("strong", {}, " · too large") : loss.state === "pass" ? "" : el("strong", {}, " · not all is known")]);
  }
  function clocksPart() {
    const f = view.finish, w = view.budget, u = view.undo, l = view.ladder, soon = (clock, seconds) => clock && value(clock) < seconds;
    const near = [soon(w.left, 30), soon(w.left, 0), soon(u.left, 600), soon(u.left, 0), soon(u.decide_by, 300), soon(u.decide_by, 0)];
    const loss = view.loss, old = loss && value(loss.clock) > loss.old_after;
    draw("clocks", [f, w, u, loss, old, l, view.held, view.holds, view.over, view.passed, view.applicable, near, view.state], () => {
      const tiles = [];
      if (view.over) {
        const off = f.actual - f.plan;
        tiles.push(tile("Ended", view.state !== "completed" ? "plain" : off > Math.max(60, (f.plan - view.started) / 10) ? "warn" : "good", time(f.actual, false), "plan " + time(f.plan, false) + ", " + (off > 0 ? span(off) + " later" : span(-off) + " earlier")));
      } else if (u.order.length) {
        const back = u.order.filter((one) => one.state === "undone, verified").length;
        tiles.push(tile("Rollback", "warn", back + " / " + u.order.length, "undone and verified · " + span(u.needs) + " planned for the rest"));
      } else if (f.p50 === null) {
        tiles.push(tile("Finish, forecast", "warn words", "not known", "no executor is known to drive the run · plan " + time(f.plan, false)));
      } else {
        const off = f.p50 - f.plan, past = f.closes !== null && f.p90 > f.closes;
        tiles.push(tile("Finish, forecast", past ? "bad" : off > Math.max(60, (f.plan - view.started) / 10) ? "warn" : "plain", (f.unknown.length ? "≥ " : "") + time(f.p50, false),
          ["p90 " + time(f.p90, false) + " · plan " + time(f.plan, false) + (off > 1 ? ", " + span(off) + " late" : off < -1 ? ", " + span(-off) + " early" : ""),
            el("br"), el("span", { class: "dim" }, f.drills > 1 ? "from " + f.drills + " drills" : "by the plan", past ? el("strong", {}, " · past the window") : "")]));
      }
      if (w.state !== "none") {
        const words = w.limit !== null ? "of " + span(w.limit) : "no budget";
        if (w.state === "not begun") tiles.push(tile("Write stop", "plain", w.limit !== null ? span(w.limit) : "–", "not begun" + (w.plan ? " · planned for " + span(w.plan) : "")));
        else if (w.left) tiles.unshift(tile("Write stop", "wide loud " + (near[1] ? "bad" : near[0] ? "warn" : "busy"), [ticking(w.left, " left")],
          ["writes are stopped for ", ticking(w.used), " " + words + (near[1] ? " · the budget is spent" : " · at 0:00 it is canceled by itself")], gauge(value(w.used), w.plan, w.limit, w.used, near[1] ? "bad" : near[0] ? "warn" : "busy")));
        else if (w.left_stopped) tiles.unshift(tile("Write stop", "wide words bad", "! nothing shows that writes are open", ["they were stopped, and the run ended after ", ticking(w.used)]));
        else tiles.push(tile("Write stop", w.state === "spent" || view.alarm ? "bad" : "good", ticking(w.used), (w.state === "spent" ? "more than its budget of " + span(w.limit) : words) + (w.used.runs === "up" ? " · writes are stopped" : " · writes are open")));
      }
      if (!view.over && !u.order.length) {
        if (!u.armed.length) tiles.push(tile("Decide on rollback", "plain words", "nothing to roll back", u.expired.length || u.irreversible.length ? [u.expired.length ? u.expired.length + " expired" : "", u.irreversible.length ? "without a rollback: " + u.irreversible.join(", ") : ""].filter(Boolean).join(" · ") : "no effect stands"));
        else if (u.unknown.length) tiles.push(tile("Decide on rollback", "bad words", "now", "no planned time to roll back " + u.unknown.join(", ")));
        else if (u.left) tiles.push(tile("Decide on rollback", near[3] ? "bad" : near[2] ? "warn" : "plain", [ticking(u.left, "", "too late")],
          "by " + time(u.until) + " · rolling back takes " + span(u.needs) + " (" + u.armed.length + ")"));
        else if (u.until !== null) tiles.push(tile("Decide on rollback", "warn words", "by " + time(u.until), "rolling back takes " + span(u.needs) + " (" + u.armed.length + ") · needs an executor"));
        else tiles.push(tile("Rollback", "plain", span(u.needs), "to roll back " + u.armed.length + (u.armed.length === 1 ? " step" : " steps") + " · no window"));
        if (u.decide_by) tiles.push(tile("Decide by", near[5] ? "bad" : near[4] ? "warn" : "plain", [ticking(u.decide_by, "", "too late")], "go or roll back, at " + time(u.decide_by.zero)));
        if (loss) tiles.push(lossTile(loss, old));
      }
      if (l.passed.length || l.ahead.length) tiles.push(tile("Point of no return", "words " + (l.rung === 2 ? "bad" : l.rung === 1 ? "warn" : "plain"),
        l.rung === 2 ? "! passed: no rollback" : l.rung === 1 ? "! passed: a rollback loses data" : "not passed",
        l.passed.length ? "passed at " + l.passed.join(", ") : "ahead: " + l.ahead.join(", ")));
      if (f.closes !== null && !view.over) tiles.push(tile("Window", f.window === "open" ? "plain" : "bad", f.window === "not open yet" ? ticking({ runs: "down", zero: f.opens, exact: true }) : ticking({ runs: "down", zero: f.closes, exact: true }, "", "closed"),
        f.window === "not open yet" ? "until it opens, at " + time(f.opens, false) : "until it closes, at " + time(f.closes, false)));
      tiles.push(tile("Steps", "plain", view.passed + " / " + view.applicable, ["passed", view.holds ? [" · held " + (view.holds === 1 ? "once, " : view.holds + " times, "), ticking(view.held)] : ""].flat()));
      return tiles;
    });
  }
  function warningsPart() {
    $("warnings").hidden = !view.warnings.length;
    draw("warnings", view.warnings, () => el("ul", {}, view.warnings.map((one) => el("li", { class: one.level }, (one.level === "bad" ? "✗ " : "! ") + one.text))));
  }
  // Which watch proved which direction, up to where: the answers of the gates, side by side.
  const DIRECTIONS = { forward: "forward: the target follows", "hand-over": "hand-over", reverse: "reverse: the source follows" };
  function directionsPart() {
    $("directions").hidden = !view.directions.length;
    draw("directions", view.directions, () => el("ul", { class: "rows" }, view.directions.map((one) => {
      const [symbol, kind] = ANSWER[one.state] || ["?", "bad"], bad = one.state === "fail" || one.state === "inconclusive";
      return el("li", { class: bad ? "alert" : one.clock ? "" : "idle", "data-direction": one.name },
        chip(one.state, kind, symbol), el("span", { class: "name" }, DIRECTIONS[one.name]),
        one.clock ? el("span", { class: "dim num" }, ticking(one.clock, " ago")) : el("span", {}),
        one.clock ? el("span", { class: "under" }, [one.text, one.as_of ? "as of " + one.as_of : "", one.run ? "watch " + one.run : "", "asked by " + one.asked].filter(Boolean).join(" · ")) : null);
    })));
  }
  function guardsPart() {
    draw("guards", view.guards, () => view.guards.length ? el("ul", { class: "rows" }, view.guards.map((one) => {
      const [symbol, kind] = ANSWER[one.state] || ["?", "bad"];
      return el("li", { class: (one.state === "fail" || one.state === "inconclusive" || one.stale) && one.armed ? "alert" : one.armed ? "" : "idle" },
        chip(one.state, kind, symbol),
        el("span", { class: "name" }, one.id, one.holds ? el("span", { class: "dim" }, " holds the run") : "", one.armed ? "" : el("span", { class: "dim" }, " not armed")),
        one.clock ? el("span", { class: "dim num" }, one.stale ? "! old: " : "", ticking(one.clock, " ago")) : el("span", {}),
        el("span", { class: "under" }, [one.text || one.asks, one.value && !one.text.includes(one.value) ? " = " + one.value : ""].join("")));
    })) : el("p", { class: "dim" }, "The runbook has no guards."));
  }
  function saidPart() {
    const bad = view.announcements.filter((one) => one.state === "failed" || one.state === "given up");
    const rest = view.announcements.filter((one) => !bad.includes(one)).slice(0, Math.max(3, 8 - bad.length));
    draw("said", [bad, rest, view.announcements.length], () => view.announcements.length ? [
      el("ul", { class: "rows" }, [...bad.slice(0, 12), ...rest].map((one) => {
        const [symbol, kind] = SENT[one.state] || ["?", "bad"], failed = bad.includes(one);
        return el("li", { class: failed ? "alert" : "", "data-state": one.state },
          chip(one.state, kind, symbol), el("span", { class: "text" }, one.text), el("span", { class: "dim num" }, time(one.at)),
          failed ? one.sinks.filter((sink) => sink.state !== "sent").map((sink) => el("span", { class: "under" }, sink.sink + ": " + sink.state + (sink.tries ? " after " + sink.tries + (sink.tries === 1 ? " try" : " tries") : "") + (sink.reason ? ": " + sink.reason : ""))) : null);
      })), view.announcements.length > bad.length + rest.length ? el("p", { class: "dim" }, (view.announcements.length - bad.length - rest.length) + " more were delivered") : null] : el("p", { class: "dim" }, "Nothing was announced yet."));
  }
  function logPart() {
    const some = view.log.slice(0, 18);
    draw("log", some, () => el("ul", { class: "rows" }, some.map((one) => el("li", { class: one.weight }, el("span", { class: "dim num" }, time(one.at)), el("span", { class: "t" }, (one.weight === "bad" ? "! " : "") + one.text)))));
  }

  // -- steps ----------------------------------------------------------------------------------------------------
  function axisEnd() {
    const f = view.finish, elapsed = (view.ended || now()) - view.started;
    const end = Math.max(f.plan - view.started, (f.p90 || 0) - view.started, elapsed, 1);
    // In coarse steps, so that a late run does not draw the whole table every second.
    const grain = Math.pow(10, Math.floor(Math.log10(end))) / 20;
    return Math.ceil(end / grain) * grain;
  }
  function lane(step, end) {
    const x = (seconds) => (1000 * Math.max(0, seconds) / end).toFixed(1), w = (from, to) => Math.max(3, 1000 * (to - from) / end).toFixed(1);
    const svg = el("svg", { class: "lane " + (step.late === "max" ? "bad" : step.late === "plan" ? "warn" : tone(step)[1]), viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img",
      "aria-label": (step.planned_start !== null ? "planned from " + span(step.planned_start) + " to " + span(step.planned_finish) : "not planned") + (step.actual_start !== null ? "; began " + span(step.actual_start) + (step.actual_finish !== null ? ", ended " + span(step.actual_finish) : "") : "") },
      el("rect", { class: "track", y: 0, width: 1000, height: 20 }));
    if (step.actual_start !== null) {
      const runs = step.actual_finish === null && !view.over;
      svg.append(el("rect", { class: "fill", x: x(step.actual_start), y: 4, height: 12, width: w(step.actual_start, step.actual_finish === null ? (view.ended || now()) - view.started : step.actual_finish), "data-from": runs ? step.actual_start : null, "data-axis": runs ? end : null }));
    } else if (step.forecast_start !== null) svg.append(el("rect", { class: "ahead", x: x(step.forecast_start), y: 6, height: 8, width: w(step.forecast_start, step.forecast_finish) }));
    if (step.planned_start !== null && step.state !== "not applicable") svg.append(el("rect", { class: "planned", x: x(step.planned_start), y: 2, height: 16, width: w(step.planned_start, step.planned_finish) }));
    if (!view.over) svg.append(el("line", { class: "now", x1: x(now() - view.started), x2: x(now() - view.started), y1: 0, y2: 20, "data-now": end }));
    return svg;
  }
  function row(step, end) {
    const [symbol, kind] = tone(step), current = view.current.includes(step.id), na = step.state === "not applicable";
    const made = el("details", { class: "step " + kind + (current ? " current" : "") + (na ? " na" : ""), "data-step": step.id, "data-state": step.state, open: open.has(step.id) },
      el("summary", { "data-focus": step.id },
        el("span", { class: "st" }, el("span", { class: "symbol", "aria-hidden": "true" }, symbol), " " + (na ? "n/a" : step.state)),
        el("span", { class: "what" }, el("b", {}, step.id), step.attempt > 1 ? el("span", { class: "dim" }, " ×" + step.attempt) : "", step.point_of_no_return ? el("span", { class: "chip bad" }, pnr(step)) : "", el("span", { class: "title" }, " " + step.title)),
        el("span", { class: "people", title: "DRI → reviewer" }, (step.by || step.dri_people[0] || "nobody") + (step.reviewer ? " → " + (step.reviewer_people[0] || "nobody") : "")),
        lane(step, end),
        el("span", { class: "times num" }, step.clock ? el("span", { class: step.late ? "late" : "" }, ticking(step.clock)) : step.took !== null ? el("span", { class: step.late ? "late" : "" }, span(step.took)) : "–",
          el("span", { class: "dim" }, " / " + (step.plan !== null ? span(step.plan) : "?")), step.late ? el("span", { class: "unseen" }, " late") : ""),
        el("span", { class: "undo " + (UNDO[step.undo.state] || "plain") + (step.undo.state === "none needed" ? "" : " known"), title: "rollback" }, step.undo.state === "none needed" ? "" : "↩ " + step.undo.state)));
    made.addEventListener("toggle", () => {
      if (made.open) { open.add(step.id); if (made.children.length < 2) made.append(facts(step)); } else open.delete(step.id);
    });
    if (open.has(step.id)) made.append(facts(step));
    return made;
  }
  function facts(step) {
    const list = el("dl"), add = (name, ...what) => { if (what.some((one) => one && (one.length === undefined || one.length))) list.append(el("dt", {}, name), el("dd", {}, ...what)); };
    const who = (role, some) => role ? role.replace(/_/g, " ") + (some.length && some[0] !== role ? ": " + some[0] + (some[1] ? " (backup " + some[1] + ")" : "") : some.length ? "" : ": nobody") : "";
    add("what to do", step.instruction);
    add("DRI", who(step.dri, step.dri_people) + (step.by ? "; started by " + step.by : "") + (step.called_by ? "; called by " + step.called_by : ""));
    add("reviewer", who(step.reviewer, step.reviewer_people));
    add("waits for", step.needs.join(", "));
    add("times", "plan " + (step.plan !== null ? span(step.plan) : "none") + (step.maximum !== null ? ", at most " + span(step.maximum) : "") + (step.minimum !== null ? ", at least " + span(step.minimum) : "") + (step.critical ? ", on the critical path" : ""));
    add("expects", step.expects.map((one) => el("div", { class: "mono" }, one)));
    add("reason", step.reason);
    add("waived", step.waiver);
    add("alarms", step.alarms.join(", "));
    add("evidence", step.evidence.map((one) => el("div", {}, el("span", { class: "dim" }, one.source + ": "), one.text,
      one.checks.map((check) => { const [symbol, kind] = ANSWER[check.state] || ["?", "bad"]; return el("div", { class: kind }, el("span", { class: "check" }, symbol + " " + check.state + " "), el("span", { class: "mono" }, check.action), " " + check.text); }),
      one.details ? el("pre", {}, one.details) : "")));
    add("evidence hash", step.evidence_sha ? el("span", { class: "mono" }, step.evidence_sha.slice(0, 12)) : "");
    add("to be signed", step.sign ? el("span", { class: "mono" }, step.sign.slice(0, 12)) : "");
    add("approvals", step.approvals.map((one) => el("div", {}, one.person + " approved " + one.of + (one.answer ? " (" + one.answer + ")" : "") + " at " + time(one.at) + ", ",
      el("span", { class: one.signed ? "good check" : "warn check" }, one.signed ? "✓ signed" : "! not signed"), el("span", { class: "mono dim" }, " " + one.hash.slice(0, 12)), one.reason ? ": " + one.reason : "")), step.missing);
    add("rollback", step.undo.state + (step.undo.reason ? " (" + step.undo.reason + ")" : "") + (step.undo.plan !== null ? ", planned for " + span(step.undo.plan) : "") + (step.undo.valid_until ? ", valid until " + step.undo.valid_until : "") + (step.undo.data_loss ? ", data loss: " + step.undo.data_loss : ""), step.undo.instruction ? el("div", { class: "dim" }, step.undo.instruction) : "");
    return el("div", { class: "facts" }, list);
  }
  // A phase in one line: from its first start to its last end, planned and actual.
  function whole(some, end) {
    const at = (name, pick) => { const found = some.map((one) => one[name]).filter((one) => one !== null); return found.length ? pick(...found) : null; };
    const open_ = some.some((one) => one.actual_start !== null && one.actual_finish === null);
    const planned = [at("planned_start", Math.min), at("planned_finish", Math.max)], actual = [at("actual_start", Math.min), open_ ? null : at("actual_finish", Math.max)];
    const sum = { state: some.every((one) => ["done", "waived", "dry", "not applicable"].includes(one.state)) ? "done" : "running", late: "", planned_start: planned[0], planned_finish: planned[1], actual_start: actual[0], actual_finish: actual[1], forecast_start: null };
    const took = actual[0] !== null && actual[1] !== null ? span(actual[1] - actual[0]) : "";
    return [lane(sum, end), el("span", { class: "times num" }, took ? took : "", planned[0] !== null ? el("span", { class: "dim" }, (took ? " / " : "") + span(planned[1] - planned[0])) : "")];
  }
  function stepsPart() {
    const end = axisEnd();
    draw("steps", [view.steps, view.current, view.phases, end, view.over], () => {
      const many = view.steps.length > 30;
      const head = el("div", { class: "axis" }, el("div", { class: "legend" }, el("span", {}, "DRI → reviewer"), el("span", {}, el("i", { class: "k-planned" }), "planned"), el("span", {}, el("i", { class: "k-actual" }), "actual"), view.over ? "" : el("span", {}, el("i", { class: "k-ahead" }), "forecast")),
        el("div", { class: "ends num" }, el("span", {}, time(view.started, false)), el("span", {}, time(view.started + end / 2, false)), el("span", {}, time(view.started + end, false))), el("span", { class: "right" }, "took / plan"), el("span", { class: "right" }, "rollback"));
      const phases = view.phases.map((phase) => {
        const some = view.steps.filter((one) => one.phase === phase.id), has = some.some((one) => view.current.includes(one.id));
        const shut = closed.has(phase.id) || (!open.has("phase " + phase.id) && !has && !view.over && (phase.state === "passed" || (many && phase.state === "ahead")));
        const made = el("details", { class: "phase", open: !shut }, el("summary", { "data-focus": "phase " + phase.id },
          el("span", { class: "name" }, phase.id), chip(phase.passed + " of " + phase.steps, phase.state === "passed" ? "good" : phase.state === "begun" ? "busy" : "plain", phase.state === "passed" ? "✓" : ""), whole(some, end)), some.map((one) => row(one, end)));
        made.addEventListener("toggle", (event) => {
          if (event.target !== made) return;
          if (made.open) { closed.delete(phase.id); open.add("phase " + phase.id); } else { closed.add(phase.id); open.delete("phase " + phase.id); }
        });
        return made;
      });
      return [head, ...phases];
    });
  }
  function foot() {
    const j = view.journal, x = view.executor;
    draw("foot", [j, x, view.sha, view.text_sha], () => [
      el("span", {}, "Journal: event " + j.seq + ", head ", el("span", { class: "mono", id: "head" }, j.head.slice(0, 16)), j.told_seq !== null ? ", published at event " + j.told_seq : ", not published yet"),
      el("span", {}, "Epoch " + x.epoch),
      el("span", { id: "executor" }, x.state === "nobody" ? "No executor" : "Executor " + x.name + (x.person ? " of " + x.person : "") + (x.state === "not seen" ? "" : ", " + x.state), x.clock ? [", last beat ", ticking(x.clock, " ago")] : ""),
      el("span", {}, "Runbook ", el("span", { class: "mono" }, view.runbook + " " + view.sha.slice(0, 12))),
      el("span", {}, "Times are " + (Intl.DateTimeFormat().resolvedOptions().timeZone || "local") + " (" + zone() + ")"),
      el("a", { href: "report.html" }, "Report so far")]);
  }

  // -- the loop -------------------------------------------------------------------------------------------------
  function paint(answer) {
    const problem = answer.problem;
    document.body.classList.remove("loading");
    $("problem").hidden = !problem;
    $("main").hidden = Boolean(problem);
    $("foot").hidden = Boolean(problem);
    $("stale").hidden = true;
    view = answer.view;
    if (problem) {
      // Nothing of an older state stays: it could be mistaken for the present one.
      for (const id of Object.keys(drawn)) { delete drawn[id]; ($(id).querySelector(".body") || $(id)).replaceChildren(); }
      $("top").dataset.state = problem.kind === "waiting" ? "waiting" : "damaged";
      text("label", ""); text("title", answer.room); text("where", ""); text("sentence", problem.text);
      $("label").hidden = true;
      headline(problem.kind, problem.title);
      $("hold").replaceChildren();
      $("problem").className = problem.kind === "waiting" ? "plain" : "bad";
      $("problem").replaceChildren(el("h2", {}, problem.title), el("p", {}, problem.text), problem.hint ? el("p", { class: "dim" }, problem.hint) : "");
      document.title = problem.title;
      icon("damaged");
      return;
    }
    $("label").hidden = false;
    header(); nowPart(); whoPart(); clocksPart(); warningsPart(); directionsPart(); guardsPart(); saidPart(); stepsPart(); logPart(); foot();
    $("stale").hidden = !view.stale;
    text("stale", view.stale);
  }
  let last = null;
  async function poll() {
    try {
      const answer = await fetch("view.json", { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store", signal: AbortSignal.timeout(LOST) });
      if (answer.status === 200) { last = await answer.json(); etag = answer.headers.get("ETag"); }
      else if (answer.status !== 304) throw new Error("HTTP " + answer.status);
      offset = Number(answer.headers.get("X-Now")) - Date.now() / 1000;
      seen = performance.now();
      if (last) paint(last);
    } catch (error) {
      if (!(error instanceof TypeError || error instanceof DOMException || /^HTTP/.test(error.message))) throw error;
    } finally {
      setTimeout(poll, POLL);
    }
  }
  function tick() {
    const since = performance.now() - (seen || begun), lost = since > LOST;
    $("lost").hidden = !lost;
    if (lost) {
      text("lost-for", since < 60000 ? Math.floor(since / 1000) + " s" : span(since / 1000));
      text("lost-at", seen ? " It is from " + time(now() - since / 1000) + (view ? " " + zone() : "") + "." : "");
    }
    document.body.classList.toggle("lost", lost);
    if (lost || !view) return;
    document.querySelectorAll(".clock").forEach(show);
    document.querySelectorAll("[data-grow]").forEach((bar) => bar.setAttribute("width", Math.max(0, Math.min(1000, 1000 * (now() - Number(bar.dataset.grow)) / Number(bar.dataset.end))).toFixed(1)));
    document.querySelectorAll("[data-from]").forEach((bar) => bar.setAttribute("width", Math.max(3, 1000 * (now() - view.started - Number(bar.dataset.from)) / Number(bar.dataset.axis)).toFixed(1)));
    document.querySelectorAll("[data-now]").forEach((line) => { const x = (1000 * (now() - view.started) / Number(line.dataset.now)).toFixed(1); line.setAttribute("x1", x); line.setAttribute("x2", x); });
  }
  setInterval(tick, 250);
  poll();
})();
