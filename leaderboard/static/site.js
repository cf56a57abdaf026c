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
const remembered = memory(localStorage, "theme");
if (remembered && !new URLSearchParams(location.search).has("theme")) root.dataset.theme = remembered;

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
    if (answer.redirected) return location.assign(answer.url); // a search for the name of a page
    if (!answer.ok || !answer.headers.get("content-type")?.includes("html")) throw new Error(`${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = $("main", page);
    if (!next) throw new Error("a page of its own");
    if (push) history.pushState(null, "", url);
    shown = location.pathname + location.search;
    document.title = page.title;
    replaceMain(document.adoptNode(next), push);
    ready();
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
  for (const each of $$("details.rest[open]")) if (!each.contains(event.target)) each.open = false;
  if (doing?.dataset.do === "copy") {
    try { await navigator.clipboard.writeText(location.href); doing.textContent = "Copied"; say("Copied"); }
    catch { doing.textContent = "Copy the address bar"; }
  }
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.dataset.set) {
    event.preventDefault();
    root.dataset.theme = memory(localStorage, "theme", link.dataset.set);
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

let answer = (form) => go(addressOf(form));
let waiting = 0;
function asked(event, delay) {
  const form = event.target.closest("form[data-live]");
  if (event.target.matches("[form=pick][name=m]") && event.type === "change") { tick(event.target); return; }
  if (!form || (event.type === "change") === event.target.matches("[type=search]")) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => answer(form), delay);
}
document.addEventListener("input", (event) => asked(event, 250));
document.addEventListener("change", (event) => asked(event, 0));
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-live]")) { event.preventDefault(); clearTimeout(waiting); answer(event.target); }
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
  // Of a site that was not told its address, it is where the reader found it.
  if (!isStatic) for (const each of $$("[data-site]")) each.textContent = each.textContent.replace(/\bSITE(?=\/)/g, location.origin);
  for (const box of $$("[form=pick]:checked")) if (!picked.size || picked.size < 6) picked.set(box.value, rowName(box));
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
