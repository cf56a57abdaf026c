// A site of plain files: its rows are filled, sorted, filtered and saved here. Loaded behind site.js.
"use strict";

// Filters that are read from a column though rows are entries, of which entries.js knows the others.
const COLUMNS = { zero: "unseen", reproduced: "reproduced" };
const entriesAt = new URL("entries.js", document.currentScript.src).href;
const headsOf = (table) => [...table.tHead.rows].at(-1).cells;

// What cells share stands once, in the table's data-looks: leaderboard/web/static_site.py writes it.
function fill(table) {
  const { words, columns } = JSON.parse(table.dataset.looks);
  for (const row of $$("tbody > tr:not(.group)", table)) {
    [...row.cells].forEach((cell, at) => {
      const [css, card, usual] = columns[at];
      const [kinds, ...notes] = (cell.dataset.n ?? usual).split(".").map((n) => words[n] ?? "");
      const name = cell.localName === "th" && (cell.firstElementChild ?? cell);
      cell.className = `${css} ${kinds}`.trim();
      if (card && !name) cell.dataset.label = card;
      if (notes.length) cell.title = notes.join("; ");
      if (name?.textContent?.includes("/")) {
        const [whole, organisation, rest] = /^(.*?\/)(.*)$/s.exec(name.textContent);
        const span = document.createElement("span");
        Object.assign(span, { className: "org", textContent: organisation });
        name.replaceChildren(span, rest);
      }
    });
  }
}

// A click on a heading sorts the rows.
function numberIn(cell) {
  const text = cell?.textContent.trim().replace(/[,\s†‡‖%+<]/g, "").replace("−", "-") ?? "";
  const unit = { k: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12 };
  const parts = /^(-?\d*\.?\d+(?:e[+-]?\d+)?)([kMBGT])?/.exec(text);
  return parts ? Number(parts[1]) * (unit[parts[2]] ?? 1) : NaN;
}

function sortBy(heading) {
  const table = heading.closest("table");
  const numeric = heading.matches(".num");
  const now = heading.getAttribute("aria-sort");
  const down = numeric ? now !== "descending" : now === "ascending";
  const rows = $$("tbody > tr", table);
  let part = 0; // a heading over rows stays above its rows
  const partOf = new Map(rows.map((row) => [row, row.matches(".group") ? (part += 1) : part]));
  const at = heading.cellIndex;
  const sign = down ? -1 : 1;
  const order = (a, b) => {
    const apart = partOf.get(a) - partOf.get(b) || b.matches(".group") - a.matches(".group");
    if (apart) return apart;
    const [one, two] = [a.cells[at], b.cells[at]];
    if (!numeric) return sign * one.textContent.trim().localeCompare(two.textContent.trim());
    const [x, y] = [numberIn(one), numberIn(two)];
    return Number.isNaN(x) - Number.isNaN(y) || (Number.isNaN(x) ? 0 : sign * (x - y));
  };
  for (const each of $$("th[aria-sort]", table)) { each.setAttribute("aria-sort", "none"); each.classList.remove("sorted"); }
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  heading.classList.add("sorted");
  table.tBodies[0].append(...rows.sort(order));
  say(`Sorted by ${$("a, button", heading)?.textContent ?? heading.textContent}, ${heading.getAttribute("aria-sort")}`);
}


function addSorting(table) {
  if (table.tBodies[0].rows.length < 3) return;
  for (const heading of headsOf(table)) {
    const button = document.createElement("button");
    const about = $(".go", heading);
    button.type = "button";
    button.className = "by";
    button.append(...[...heading.childNodes].filter((node) => node !== about));
    button.addEventListener("click", () => sortBy(heading));
    heading.prepend(button);
    if (!heading.hasAttribute("aria-sort")) heading.setAttribute("aria-sort", "none");
  }
}

// Filters of the table below the form, by what it shows and by entries.js.
const tableOf = (form) => $$("main table.data").find((table) => form.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING);
const columnOf = (table, name) => [...headsOf(table)].findIndex((each) => each.dataset.key === (COLUMNS[name] ?? name));
const isFact = (table, name) => name !== "q" && !COLUMNS[name] && $("[data-e]", table);
const letters = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");

// As the server's search: 0 for a whole name, 1 for its beginning, 2 for a part; then whether it is another name.
function matchName(row, query) {
  const words = query.split(/\s+/).map(letters).filter(Boolean);
  const whole = words.join("");
  const names = [row.cells[0].textContent, ...row.cells[2].textContent.split(" · ")];
  return names.flatMap((name, at) => {
    const [all, short] = [letters(name), letters(name.split("/").at(-1))];
    if (!whole || !words.every((word) => all.includes(word))) return [];
    const begins = all.startsWith(whole) || short.startsWith(whole) ? 1 : 2;
    return [[all === whole || short === whole ? 0 : begins, Math.min(at, 1)]];
  }).sort(compare)[0];
}

function compare(one, two) {
  const at = one.findIndex((each, place) => each !== two[place]);
  return at < 0 ? 0 : one[at] < two[at] ? -1 : 1;
}

function sortHits(table, form) {
  const kinds = [...form.elements.kind.options].map((each) => each.value);
  const hits = $$("tbody > tr:not([hidden])", table).map((row) => {
    const [name, kind] = [...row.cells].map((cell) => cell.textContent);
    const [quality, other] = matchName(row, form.elements.q.value);
    return { row, order: [quality, kinds.indexOf(kind), other, name.length, name] };
  });
  table.tBodies[0].prepend(...hits.sort((a, b) => compare(a.order, b.order)).map(({ row }) => row));
}

function passes(row, table, { name, value, type, selectedOptions }) {
  const cell = row.cells[columnOf(table, name)];
  if (name === "q" && table.id === "t-hits") return Boolean(matchName(row, value));
  if (name === "q") {
    const text = (row.dataset.e ? $("th", row) : row).textContent.toLowerCase();
    return value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }
  if (isFact(table, name)) {
    const fact = window.entries[row.dataset.e]?.[name];
    if (type === "checkbox") return Boolean(fact);
    if (type === "number") return Boolean(fact) && (name === "tokens" ? fact >= Number(value) : fact <= Number(value));
    return [fact].flat().includes(value);
  }
  // By the shares as they are shown: the server keeps a model of 50.4 %, too.
  if (name === "zero") return value === "all" ? cell.textContent === "100%" && !cell.matches(".leak") : parseFloat(cell.textContent) > 50;
  if (type === "checkbox") return parseInt(cell.textContent, 10) > 0;
  return [value, selectedOptions?.[0].text].includes(cell.textContent);
}

function loadEntries() {
  return new Promise((done, fail) => {
    document.head.append(Object.assign(document.createElement("script"), { src: entriesAt, onload: done, onerror: fail }));
  });
}

async function filter(form) {
  const table = tableOf(form);
  const asked = [...form.elements].filter((each) => each.name && (each.type === "checkbox" ? each.checked : each.value.trim()));
  if (!window.entries && asked.some((each) => isFact(table, each.name))) await loadEntries();
  const rows = $$("tbody > tr", table);
  let shown = 0;
  let group = null;
  for (const row of rows) {
    if (row.matches(".group")) { group = row; group.hidden = true; continue; }
    row.hidden = !asked.every((control) => passes(row, table, control));
    if (row.hidden) continue;
    shown += 1;
    if (group) group.hidden = false;
  }
  if (table.id === "t-hits" && form.elements.q.value.trim()) sortHits(table, form);
  const all = rows.filter((row) => !row.matches(".group")).length;
  say(`${shown} of ${all} rows`);
  form.nextElementSibling.textContent = asked.length ? `${shown} of ${all} rows. Ranks, marks of the best and notes are those of all rows.` : "";
  history.replaceState(null, "", addressOf(form));
}

function addFilters(form) {
  const table = tableOf(form);
  for (const { name, options } of form.elements) {
    if (!options || isFact(table, name) || COLUMNS[name]) continue;
    const texts = new Set($$("tbody > tr:not(.group)", table).map((row) => row.cells[columnOf(table, name)].textContent));
    for (const each of [...options].slice(1)) if (!texts.has(each.value) && !texts.has(each.text)) each.remove();
  }
  const count = Object.assign(document.createElement("p"), { className: "count" });
  form.after(count);
  const state = new URLSearchParams(location.search);
  for (const control of form.elements) {
    if (!state.has(control.name)) continue;
    if (control.type === "checkbox") control.checked = state.get(control.name) === control.value;
    else control.value = state.get(control.name);
  }
  if (location.search) filter(form);
}

// The tables as they are shown, as CSV. A text that a spreadsheet would take for a formula gets an apostrophe.
function writeCsv(table) {
  const quote = (text) => `"${(/^[=+@\t\r-]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const labels = [...headsOf(table)].map((each) => $(".by, span", each)?.textContent ?? each.textContent);
  const lines = $$("tbody > tr:not(.group, [hidden])", table).map(({ cells }) => [...cells].map((cell) => cell.textContent.trim()).concat(
    [...cells].map((cell, at) => cell.title && `${labels[at]}: ${cell.title}`).filter(Boolean).join("; "),
  ));
  return [[...labels, "notes"], ...lines].map((line) => `${line.map(quote).join(",")}\r\n`).join("");
}

function saveCsv() {
  const text = $$("main table.data").map(writeCsv).join("\r\n");
  const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href, download: `${$("h1").textContent}.csv` }).click();
  URL.revokeObjectURL(href);
}

answer = filter;
document.addEventListener("click", (event) => { if (event.target.closest("[data-do=csv]")) saveCsv(); });
document.addEventListener("DOMContentLoaded", () => {
  for (const link of $$("main a[href]:not(.reset)")) { // another state of this page: there is none
    if (link.pathname === location.pathname && !link.hash) link.removeAttribute("href");
  }
  for (const table of $$("table[data-looks]")) { fill(table); addSorting(table); }
  for (const form of $$("form[data-live]")) if (tableOf(form)) addFilters(form);
});
