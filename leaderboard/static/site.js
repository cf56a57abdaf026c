// What JavaScript adds; every page works without it. Loaded before the body, so a remembered theme shows at once.
"use strict";

const root = document.documentElement;
root.classList.add("js");
const isStatic = root.hasAttribute("data-static");
const $ = (css, from = document) => from.querySelector(css);
const $$ = (css, from = document) => [...from.querySelectorAll(css)];
const say = (text) => { $("#said").textContent = text; };
const memory = (store, key, value) => {
  try {
    if (value === undefined) return store.getItem(key);
    store.setItem(key, value);
  } catch { /* storage is off: nothing is remembered */ }
  return value ?? null;
};

// Theme: the address wins, then what this browser remembers, then the reader's system.
const changed = () => document.dispatchEvent(new CustomEvent("themechange"));
const remembered = memory(localStorage, "theme");
if (remembered && !new URLSearchParams(location.search).has("theme")) root.dataset.theme = remembered;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);

// Going to another state of this page: fetch it, put its <main> in place of this one.
let going = null;
let shown = location.pathname + location.search;

function nameOf(element) { // a selector that finds the same thing in the next <main>
  const heading = element?.closest?.("th[data-key]");
  const row = element?.closest?.("tr[data-key]");
  const table = element?.closest?.("table");
  if (element?.id) return `#${CSS.escape(element.id)}`;
  if (heading) return `#${CSS.escape(table.id)} th[data-key="${CSS.escape(heading.dataset.key)}"] a`;
  if (element?.name) return `[name="${CSS.escape(element.name)}"][value="${CSS.escape(element.value)}"]`;
  if (row) return `#${CSS.escape(table.id)} tr[data-key="${CSS.escape(row.dataset.key)}"] ${element.localName}`;
  return null;
}

function replaceMain(next, typing) {
  const old = $("main");
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const name = nameOf(focus);
  const typed = typing && focus?.type === "search" ? [focus.value, focus.selectionStart] : null;
  const folds = $$("details[id]", old).map((each) => [each.id, each.open]);
  const scrolled = $$(".scroll", old).map((each) => [$("table", each)?.id, each.scrollLeft]);
  old.replaceWith(next);
  for (const [id, open] of folds) document.getElementById(id)?.toggleAttribute("open", open);
  for (const [id, left] of scrolled) {
    const box = id && document.getElementById(id)?.closest(".scroll");
    if (box) box.scrollLeft = left;
  }
  const same = name && $(name, next);
  if (same) {
    same.focus({ preventScroll: true });
    if (typed) { [same.value] = typed; same.setSelectionRange(typed[1], typed[1]); }
  } else if (focus) next.focus({ preventScroll: true });
}

async function go(url, { push = true } = {}) {
  going?.abort();
  going = new AbortController();
  $("main").setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(url, { signal: going.signal, headers: { Accept: "text/html" } });
    if (!answer.ok || !answer.headers.get("content-type")?.includes("html")) throw new Error(`${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = $("main", page);
    if (!next) throw new Error("a page of its own");
    if (push) history.pushState(null, "", url);
    shown = location.pathname + location.search;
    document.title = page.title;
    replaceMain(document.adoptNode(next), push);
    ready();
    document.dispatchEvent(new CustomEvent("mainchange"));
    say(($("main [data-count]") ?? $("main .pager .range"))?.textContent ?? page.title);
  } catch (error) {
    if (error.name !== "AbortError") location.assign(url);
  }
}

function addressOf(form) { // a form's state as a short address: what is empty or as it was given is left out
  const url = new URL(form.action);
  url.search = "";
  for (const [key, value] of new FormData(form)) {
    const first = form.elements[key].selectedIndex === 0 && !form.elements[key].matches("[data-named]");
    if (value !== "" && !first) url.searchParams.append(key, value);
  }
  return url.href;
}

// Comparing: rows ticked on any state of the page are remembered for this visit.
let picked = new Map();
try { picked = new Map(JSON.parse(memory(sessionStorage, "picked") ?? "[]")); } catch { /* start with none */ }
const rowName = (box) => $("th a", box.closest("tr"))?.textContent ?? box.value;

function tick(box) {
  const most = Number($("#pick")?.dataset.most ?? 6);
  if (!box.checked) picked.delete(box.value);
  else if (picked.size < most) picked.set(box.value, rowName(box));
  else { box.checked = false; say(`No more than ${most} can be compared`); return; }
  showPicked();
}

function showPicked() {
  const bar = $("#pick");
  memory(sessionStorage, "picked", JSON.stringify([...picked]));
  if (!bar) return;
  for (const box of $$("[form=pick][name=m]")) box.checked = picked.has(box.value);
  const list = $(".chosen", bar) ?? bar.insertBefore(document.createElement("ul"), $("button", bar));
  list.className = "chosen";
  list.replaceChildren(...[...picked].map(([key, name]) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: `${name} ×`, ariaLabel: `do not compare ${name}` });
    button.addEventListener("click", () => { picked.delete(key); showPicked(); });
    item.append(button);
    return item;
  }));
  const least = Number(bar.dataset.least);
  const submit = $("button:not([type])", bar);
  submit.disabled = picked.size < least;
  $(".told", bar).textContent = picked.size < least
    ? `${picked.size} ticked, ${least} to ${bar.dataset.most} can be compared` : `${picked.size} ticked`;
  bar.classList.toggle("some", picked.size > 0);
}

// Tables of a site of plain files: a click on a heading sorts what is there.
function numberIn(cell) {
  const text = cell?.textContent.trim().replace(/[,\s†‡‖%]/g, "").replace("−", "-") ?? "";
  const unit = { k: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12 };
  const parts = /^(-?\d*\.?\d+(?:e[+-]?\d+)?)([kMBGT])?/.exec(text);
  return parts ? Number(parts[1]) * (unit[parts[2]] ?? 1) : NaN;
}

function sortHere(heading) {
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

function readyStatic() {
  for (const link of $$("main :not(th) > a[href]")) { // another state of this page: there is none
    if (link.pathname === location.pathname && !link.hash) link.removeAttribute("href");
  }
  for (const heading of $$("table.data thead tr:last-child th")) {
    if (heading.closest("table").tBodies[0]?.rows.length < 3 || $(":scope > a:not(.go), .by", heading)) continue;
    const button = document.createElement("button");
    const about = $(".go", heading);
    button.type = "button";
    button.className = "by";
    button.append(...[...heading.childNodes].filter((node) => node !== about));
    heading.prepend(button);
    if (!heading.hasAttribute("aria-sort")) heading.setAttribute("aria-sort", "none");
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const rest = $("details.rest[open]");
  if (event.key === "Escape" && rest) { rest.open = false; $("summary", rest).focus(); }
  if (!["/", "?"].includes(event.key) || document.activeElement?.matches("input:not([type=checkbox]), select, textarea")) return;
  event.preventDefault();
  if (event.key === "/") $("#find")?.focus();
  else $("#keys").togglePopover();
});

// Clicks and changes, heard once for every state of the page.
document.addEventListener("click", async (event) => {
  const doing = event.target.closest("[data-do]");
  const link = event.target.closest("a[href]");
  const heading = event.target.closest("thead tr:last-child th");
  for (const each of $$("details.rest[open]")) if (!each.contains(event.target)) each.open = false;
  if (doing?.dataset.do === "copy") {
    try { await navigator.clipboard.writeText(location.href); doing.textContent = "Copied"; say("Copied"); }
    catch { doing.textContent = "Copy the address bar"; }
  }
  if (isStatic && heading && event.target.closest(".by, th > a:not(.go)")) { event.preventDefault(); sortHere(heading); return; }
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.dataset.set) {
    event.preventDefault();
    root.dataset.theme = memory(localStorage, "theme", link.dataset.set);
    changed();
    const url = new URL(location.href);
    url.searchParams.delete("theme");
    history.replaceState(null, "", url);
    shown = url.pathname + url.search;
    return;
  }
  const inside = link.closest("main") && !link.target && link.dataset.plain === undefined;
  if (isStatic || !inside || link.origin !== location.origin || link.pathname !== location.pathname || link.hash) return;
  event.preventDefault();
  go(link.href);
});

let waiting = 0;
function asked(event, delay) {
  const form = event.target.closest("form[data-live]");
  if (event.target.matches("[form=pick][name=m]") && event.type === "change") { tick(event.target); return; }
  if (!form || isStatic || (event.type === "change") === event.target.matches("[type=search]")) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => go(addressOf(form)), delay);
}
document.addEventListener("input", (event) => asked(event, 250));
document.addEventListener("change", (event) => asked(event, 0));
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-live]")) { event.preventDefault(); clearTimeout(waiting); go(addressOf(event.target)); }
  if (event.target.id === "pick") {
    event.preventDefault();
    const url = new URL(event.target.action);
    for (const key of picked.keys()) url.searchParams.append("m", key);
    location.assign(url);
  }
});
addEventListener("popstate", () => {
  if (location.pathname + location.search !== shown) go(location.href, { push: false });
});

function ready() {
  for (const table of $$("table.data:has(.groups)")) { // names of groups stop where the columns that stay end
    const names = $("tbody tr:not(.group) > .sticky:not(:has(+ .sticky))", table);
    if (names) table.style.setProperty("--names", `${names.getBoundingClientRect().right - table.parentElement.getBoundingClientRect().left}px`);
  }
  for (const box of $$("[form=pick]:checked")) if (!picked.size || picked.size < 6) picked.set(box.value, rowName(box));
  if (isStatic) readyStatic();
  showPicked();
}
document.addEventListener("DOMContentLoaded", () => {
  const narrow = matchMedia("(max-width: 40rem)");
  const fold = () => { for (const each of $$(".fold, .menu")) each.open = !narrow.matches; };
  if (narrow.matches) fold();
  $(".menu")?.setAttribute("data-ready", "");
  narrow.addEventListener("change", fold);
  ready();
});
