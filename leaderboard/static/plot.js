// Draws each chart with Plotly when it comes into view; without it the chart's table stands.
"use strict";
(() => {
  const script = document.currentScript;
  const CONFIG = { responsive: true, displayModeBar: false, plotlyServerURL: "", showSendToCloud: false };
  const TOKENS = { ink: "--ink", other: "--ink-3", bad: "--bad", warn: "--warn", good: "--good" };
  const drawn = new Map(); // view -> figure as the page gives it
  let library = null;

  const load = () => library ??= new Promise((done, failed) => {
    const tag = Object.assign(document.createElement("script"), { src: script.dataset.src, onload: done, onerror: failed });
    document.head.append(tag);
  });

  const probe = document.createElement("i"); // turns the style sheet's colours into rgb()
  const css = (name) => {
    document.body.append(probe);
    probe.style.color = `var(${name}, gray)`;
    return getComputedStyle(probe).color;
  };
  const colour = (name) => css(TOKENS[name] ?? `--${name}`);

  function painted(trace) { // a copy of a trace in the theme's colours
    const own = colour(trace.meta.colour);
    const copy = { ...trace, line: { ...trace.line, color: own } };
    copy.marker = { ...trace.marker, color: own, line: { ...trace.marker?.line, color: css("--ink") } };
    if (!trace.marker?.line) copy.marker.line = { width: 0 };
    for (const axis of ["error_x", "error_y"]) if (trace[axis]) copy[axis] = { ...trace[axis], color: own };
    if (trace.fill) Object.assign(copy, { fillcolor: own.replace("rgb(", "rgba(").replace(")", ", 0.15)"), line: { width: 0 } });
    if (trace.type === "bar") Object.assign(copy, { insidetextfont: { color: css("--paper") }, outsidetextfont: { color: css("--ink") } });
    return copy;
  }

  function dressed(layout) {
    const ink = css("--ink");
    const axis = (own) => ({ ...own, gridcolor: css("--rule"), linecolor: css("--ink-3"), tickcolor: css("--rule") });
    const shape = (own) => (own.type === "rect" ? { ...own, fillcolor: css("--tint") } : { ...own, line: { ...own.line, color: css("--ink-3") } });
    return {
      ...layout,
      xaxis: axis(layout.xaxis),
      yaxis: axis(layout.yaxis),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { bgcolor: css("--sheet"), bordercolor: css("--ink-3"), font: { color: ink }, align: "left" },
      shapes: (layout.shapes ?? []).map(shape),
      annotations: [...(layout.annotations ?? [])],
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    };
  }

  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;

  const strip = (x0, y0, x1, y1) => ({
    left: Math.min(x0, x1) - 1, right: Math.max(x0, x1) + 1, top: Math.min(y0, y1) - 1, bottom: Math.max(y0, y1) + 1,
  });

  function names(view, figure) { // annotations for the names that fit beside their points
    const { xaxis: across, yaxis: up } = view._fullLayout;
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const at = (x, y) => [across.d2p(x), up.d2p(y)];
    const points = figure.data.filter((t) => t.mode === "markers").flatMap((t) => t.x.map((x, i) => {
      const [left, top] = at(x, t.y[i]);
      const half = ([].concat(t.marker.size)[i] ?? t.marker.size) / 2;
      return { x, y: t.y[i], left: left - half, right: left + half, top: top - half, bottom: top + half };
    }));
    const drawing = figure.data.filter((t) => t.mode === "lines").flatMap((t) => t.x.slice(1).flatMap((x, i) => {
      const [[x0, y0], [x1, y1]] = [at(t.x[i], t.y[i]), at(x, t.y[i + 1])];
      const [cx, cy] = t.line.shape === "vh" ? [x0, y1] : [x1, y0];
      return t.line.shape ? [strip(x0, y0, cx, cy), strip(cx, cy, x1, y1)] : [];
    }));
    for (const mark of figure.layout.shapes ?? []) {
      if (mark.type === "line") drawing.push(strip(across.d2p(mark.x0), 0, across.d2p(mark.x1), up._length));
    }
    for (const bars of figure.data.filter((t) => t.type === "bar")) {
      for (const [i, x] of bars.x.entries()) {
        const [from, to] = [across.d2p(x - bars.width / 2), across.d2p(x + bars.width / 2)];
        drawing.push({ left: from, right: to, top: up.d2p(bars.y[i]), bottom: up._length });
      }
    }
    const taken = (figure.layout.annotations ?? []).map((word) => {
      const x = across.type === "log" ? across.d2p(10 ** word.x) : across.d2p(word.x);
      const top = word.yanchor === "bottom" ? -18 : 0;
      return { left: x, right: x + pen.measureText(word.text).width * 1.1 + 4, top, bottom: top + 18 };
    });
    const found = [];
    for (const [rank, name] of figure.layout.meta.names.entries()) {
      const [x, y] = at(name.x, name.y);
      if (!(x >= 0 && x <= across._length && y >= 0 && y <= up._length)) continue;
      const width = pen.measureText(name.text.replace(/&\w+;/g, "x")).width + 4;
      const places = [[-width - 3, -20], [-width / 2, -23], [5, -21], [-width - 9, -7], [9, -7], [7, 6], [-width / 2, 9], [-width - 7, 6]];
      let best = null;
      for (const [dx, dy] of places) {
        const box = { left: x + dx, right: x + dx + width, top: y + dy, bottom: y + dy + 14 };
        const inside = box.left >= 0 && box.right <= across._length && box.top >= -8 && box.bottom <= up._length;
        const covered = points.filter((p) => (p.x !== name.x || p.y !== name.y) && !apart(p, box)).length;
        if (!inside || covered > (rank < 8 ? 2 : 0) || [...taken, ...drawing].some((other) => !apart(other, box))) continue;
        if (!best || covered < best.covered) best = { covered, box, dx, dy };
      }
      if (!best) continue;
      taken.push(best.box);
      found.push({
        x: across.type === "log" ? Math.log10(name.x) : name.x, y: name.y, text: name.text, showarrow: false,
        xanchor: "left", yanchor: "top", xshift: best.dx, yshift: -best.dy, font: { size: 11 }, borderpad: 0, captureevents: false,
      });
    }
    return found;
  }

  async function label(view, figure) {
    if (!figure.layout.meta?.names || view.naming) return;
    view.naming = true;
    await Plotly.relayout(view, { annotations: [...(figure.layout.annotations ?? []), ...names(view, figure)] });
    view.naming = false;
  }

  function follow(href) {
    if (!href || !href.startsWith("/") || href.startsWith("//")) return;
    const root = new URL("../", script.src);
    location.assign(isStatic ? new URL(`${href.slice(1)}/index.html`, root) : (document.documentElement.dataset.prefix ?? "") + href);
  }

  async function draw(view, figure) {
    await Plotly.react(view, figure.data.map(painted), dressed(figure.layout), CONFIG);
    await label(view, figure);
  }

  async function start(view) {
    const figure = JSON.parse(view.nextElementSibling.textContent);
    try {
      await load();
    } catch {
      view.hidden = true;
      view.closest("figure").querySelector("details")?.setAttribute("open", "");
      return;
    }
    if (!view.isConnected) return;
    drawn.set(view, figure);
    await draw(view, figure);
    view.dataset.drawn = "true";
    view.on("plotly_click", (event) => follow(event.points[0].customdata));
    view.on("plotly_relayout", () => label(view, figure));
  }

  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((one) => one.isIntersecting)) {
      seen.unobserve(target);
      start(target);
    }
  }, { rootMargin: "200px" });

  function renew() {
    for (const view of drawn.keys()) {
      if (!view.isConnected) { Plotly.purge(view); drawn.delete(view); }
    }
    for (const view of document.querySelectorAll(".chart > .view:not([data-height])")) {
      const { height } = JSON.parse(view.nextElementSibling.textContent).layout;
      view.dataset.height = height;
      view.style.height = `${height}px`;
      seen.observe(view);
    }
  }

  renew();
  document.addEventListener("mainchange", renew);
  document.addEventListener("themechange", () => drawn.forEach((figure, view) => draw(view, figure)));
})();
