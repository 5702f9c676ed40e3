"use strict";
// The page is complete without this: it adds sorting, filtering and paging to the table of all pairs.
(function () {
  document.documentElement.classList.add("js");
  const PAGE = 200;

  function openTarget() {
    const id = location.hash.slice(1);
    const target = id && document.getElementById(id);
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", openTarget);
  // A second click on the same link fires no hashchange.
  addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href^='#t']");
    if (link && link.getAttribute("href") === location.hash) openTarget();
  });

  const table = document.getElementById("all");
  if (!table) { openTarget(); return; }
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const rows = Array.from(body.rows, (tr) => ({ tr, verdict: tr.dataset.v, keys: new Array(heads.length) }));
  for (const row of rows) row.tr.classList.remove("later");
  const query = document.getElementById("q");
  const boxes = Array.from(document.querySelectorAll("input[name=v]"));
  const shown = document.getElementById("shown");
  const more = document.getElementById("more");
  const format = new Intl.NumberFormat("en-US");
  let limit = PAGE;

  function key(row, column) {
    if (row.keys[column] === undefined) {
      const cell = row.tr.cells[column];
      const text = cell.dataset.s || cell.textContent;
      if (heads[column].dataset.kind === "n") {
        const number = Number(text.replace(/,/g, ""));
        row.keys[column] = Number.isNaN(number) ? -1 : number;
      } else row.keys[column] = text;
    }
    return row.keys[column];
  }

  function sort(column, direction) {
    const sign = direction === "ascending" ? 1 : -1;
    rows.sort((one, two) => {
      const a = key(one, column), b = key(two, column);
      return a < b ? -sign : a > b ? sign : 0;
    });
    heads.forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", direction); else head.removeAttribute("aria-sort");
    });
  }

  function draw() {
    const text = query.value.toLowerCase();
    const verdicts = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const fit = rows.filter((row) => verdicts.has(row.verdict) && (!text ||
      (key(row, 1) + "\n" + key(row, 2)).toLowerCase().includes(text)));
    body.replaceChildren(...fit.slice(0, limit).map((row) => row.tr));
    const drawn = Math.min(limit, fit.length);
    shown.textContent = "Showing " + format.format(drawn) + " of " + format.format(fit.length) +
      (fit.length < rows.length ? " that fit the filter, out of " + format.format(rows.length) : "") + " " + table.dataset.noun + ".";
    more.hidden = drawn === fit.length;
    more.textContent = "Show all " + format.format(fit.length);
  }

  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      // Numbers are sorted largest first; names and verdicts (most urgent first) upward.
      const first = head.dataset.kind === "n" && at ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      sort(at, head.getAttribute("aria-sort") === first ? other : first);
      draw();
    });
    head.replaceChildren(button);
  });
  query.addEventListener("input", () => { limit = PAGE; draw(); });
  boxes.forEach((box) => box.addEventListener("change", () => { limit = PAGE; draw(); }));
  more.addEventListener("click", () => { limit = Infinity; draw(); });
  table.closest("section").querySelector("form").addEventListener("submit", (event) => event.preventDefault());

  // Closed sections and rows not drawn belong on paper too.
  let closed = [], before = limit;
  addEventListener("beforeprint", () => {
    closed = Array.from(document.querySelectorAll("details:not([open])"));
    closed.forEach((details) => { details.open = true; });
    before = limit; limit = Infinity; draw();
  });
  addEventListener("afterprint", () => {
    closed.forEach((details) => { details.open = false; });
    limit = before; draw();
  });
  draw();
  openTarget();
})();
