// Draws scatters anew with Plotly where it is there; without it the page's own pictures stay.
"use strict";
(() => {
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "hexagon"];
  const COLOURS = ["#0b62c4", "#b8460e", "#0f7b5f", "#7a3ff2", "#b0136b", "#7a6200"];

  // The library would offer to upload the chart to its maker's servers.
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d"],
  };

  let live = [];

  /** A custom property of the style sheet, as it is now. */
  function property(figure, name, otherwise) {
    return getComputedStyle(figure).getPropertyValue(name).trim() || otherwise;
  }

  function colours(figure) {
    const text = getComputedStyle(figure).color;
    return {
      text,
      series: COLOURS.map((value, i) => property(figure, `--series-${i + 1}`, value)),
      other: property(figure, "--ink-3", "#6b7280"),
      grid: property(figure, "--rule", "rgba(128,128,128,.25)"),
      frontier: text,
      opaque: getComputedStyle(document.body).backgroundColor,
      ground: "rgba(0,0,0,0)",
    };
  }

  /** Plotly reads <b> and the like in texts; a name is text. */
  function plain(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  /** The text in lines of some 60 letters, for a tooltip. */
  function folded(text) {
    return plain(text).replace(/(.{1,60})(?: |$)/g, "$1<br>").replace(/<br>$/, "");
  }

  function intervals(one, colour) {
    const given = (i) => one.low[i] !== null && one.high[i] !== null;
    return {
      type: "data",
      symmetric: false,
      array: one.y.map((y, i) => (given(i) ? one.high[i] - y : 0)),
      arrayminus: one.y.map((y, i) => (given(i) ? y - one.low[i] : 0)),
      visible: one.y.some((_, i) => given(i)),
      color: colour,
      thickness: 1,
      width: 0,
    };
  }

  function trace(one, palette) {
    const colour = one.colour ? palette.series[one.colour - 1] : palette.other;
    const size = (i) => (one.emphasised[i] ? 14 : one.best[i] ? 11 : 8);
    const symbol = one.colour ? SYMBOLS[one.colour - 1] : "circle";
    const strong = (i) => one.emphasised[i] || one.best[i];
    return {
      type: "scatter",
      mode: "markers",
      name: plain(one.name),
      x: one.x,
      y: one.y,
      text: one.text.map(folded),
      customdata: one.href,
      hovertemplate: "%{text}<extra></extra>",
      error_y: intervals(one, colour),
      marker: {
        color: colour,
        symbol: one.hollow.map((hollow) => symbol + (hollow ? "-open" : "")),
        size: one.y.map((_, i) => size(i)),
        opacity: one.y.map((_, i) => (strong(i) ? 1 : 0.6)),
        line: { width: one.y.map((_, i) => (strong(i) ? 1.5 : 0)), color: palette.text },
      },
    };
  }

  function frontier(data, palette) {
    return {
      type: "scatter",
      mode: "lines",
      name: "Frontier",
      x: data.frontier.x,
      y: data.frontier.y,
      hoverinfo: "skip",
      line: { color: palette.frontier, width: 1.5, dash: "dot" },
    };
  }

  function axis(data, kind, palette) {
    const type = { linear: "linear", log: "log", date: "date" }[kind];
    const wanted = {
      title: { text: plain(data.label) },
      type,
      automargin: true,
      gridcolor: palette.grid,
      linecolor: palette.text,
      zeroline: false,
    };
    return type === "log" ? { ...wanted, dtick: "D2", exponentformat: "B" } : wanted;
  }

  function layout(data, kind, palette, height) {
    return {
      height,
      margin: { l: 50, r: 40, t: 10, b: 50 },
      paper_bgcolor: palette.ground,
      plot_bgcolor: palette.ground,
      font: { color: palette.text, family: "inherit", size: 13 },
      hovermode: "closest",
      showlegend: true,
      hoverlabel: { bgcolor: palette.opaque, bordercolor: palette.text, font: { color: palette.text }, align: "left" },
      modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: palette.text },
      legend: { orientation: "h", itemsizing: "constant", x: 0, y: 1.02, yanchor: "bottom" },
      xaxis: axis(data.x, kind, palette),
      yaxis: axis(data.y, data.y.kind, palette),
      uirevision: kind,
    };
  }

  /** Follows an address of this site or the web, and nothing that runs code. */
  function follow(href) {
    if (!href) return;
    const url = new URL(href, document.baseURI);
    if (url.protocol === "http:" || url.protocol === "https:") location.assign(url);
  }

  function button(text, pressed, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "plot-button";
    made.textContent = text;
    made.setAttribute("aria-pressed", String(pressed));
    made.addEventListener("click", () => {
      const now = made.getAttribute("aria-pressed") !== "true";
      made.setAttribute("aria-pressed", String(now));
      act(now);
    });
    return made;
  }

  function controls(state, draw) {
    const bar = document.createElement("div");
    bar.className = "plot-controls";
    const positive = state.data.series.every((one) => one.x.every((x) => x > 0));
    if (state.data.x.kind !== "date" && positive) {
      const log = (on) => {
        state.kind = on ? "log" : "linear";
        draw();
      };
      bar.append(button("Logarithmic", state.kind === "log", log));
    }
    const still = (on) => {
      state.holder.hidden = on;
      if (on) state.holder.before(state.picture);
      else state.picture.remove();
      if (!on) draw();
    };
    bar.append(button("Still picture", false, still));
    return bar;
  }

  async function start(figure) {
    const source = figure.querySelector("script.plot-data");
    const picture = figure.querySelector("svg");
    if (!source || !picture) return;
    const data = JSON.parse(source.textContent);
    if (!data.series.length) return;
    figure.dataset.interactive = "true";
    const holder = document.createElement("div");
    holder.className = "plot-holder";
    const state = { data, picture, holder, kind: data.x.kind };
    const height = Math.max(360, Math.min(520, picture.getBoundingClientRect().height));
    const draw = () => {
      if (holder.hidden) return null;
      const palette = colours(figure);
      const traces = [...data.series.map((one) => trace(one, palette)), frontier(data, palette)];
      state.drawn = Plotly.react(holder, traces, layout(data, state.kind, palette, height), CONFIG);
      return state.drawn;
    };
    picture.after(holder);
    try {
      await draw();
    } catch (error) {
      holder.remove();
      throw error;
    }
    picture.remove();
    holder.before(controls(state, draw));
    holder.on("plotly_click", (event) => follow(event.points[0].customdata));
    live.push({ figure, state, draw });
  }

  /** Draws what has been put into the page, and lets go of what has been taken out of it. */
  function renew() {
    for (const { state } of live.filter((one) => !one.figure.isConnected)) {
      state.drawn.finally(() => Plotly.purge(state.holder)); // not while it is being drawn
    }
    live = live.filter((one) => one.figure.isConnected);
    for (const figure of document.querySelectorAll('figure.plot[data-plot="scatter"]:not([data-interactive])')) {
      start(figure);
    }
  }

  if (window.Plotly) {
    renew();
    document.addEventListener("mainchange", renew);
    document.addEventListener("themechange", () => live.forEach((one) => one.draw()));
  }
})();
