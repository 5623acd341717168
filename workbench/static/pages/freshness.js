// How old are the answers? Quantiles over time, the distribution as a heat map, and the share of keys above each age.

import { calm, count, el, empty, percent, replace } from "../dom.js";
import { HeatMap, TimeChart } from "../charts.js";

export const title = "Freshness";
export const order = 2;

const SPANS = [["15 minutes", 900], ["1 hour", 3600], ["6 hours", 21600], ["1 day", 86400], ["1 week", 604800], ["everything", 0]];

export async function render(root, api, params) {
  let span = Number(params.get("span") ?? 3600);
  let zoom = null;
  const buttons = SPANS.map(([text, seconds]) =>
    el("button", { class: "button", type: "button", "aria-pressed": String(seconds === span), onclick: () => choose(seconds) }, text),
  );
  const note = el("p", { class: "muted" }, "\u00a0");
  root.append(el("div", { class: "row", role: "group", "aria-label": "Time span" }, buttons), note);
  const onzoom = (range) => {
    zoom = range;
    follow();
    load();
  };
  const ages = new TimeChart(root, {
    title: "Staleness of the keys that each commit applied",
    sync: "freshness",
    onzoom,
    series: [
      { label: "max", color: "--c4", dash: [4, 3] },
      { label: "p99", color: "--c2", fill: true },
      { label: "p50", color: "--c1" },
    ],
  });
  const map = new HeatMap(root, { title: "Keys by age, over time" });
  const pair = el("div", { class: "pair" });
  root.append(pair);
  const above = new TimeChart(pair, {
    title: "Share of keys that were older",
    height: 200,
    x: "log",
    value: (v) => (v < 0.1 ? `${+(v * 100).toPrecision(2)} %` : percent(v)),
    log: [0.0001, 1],
    series: [{ label: "older", color: "--c1", fill: true }],
  });
  const behind = new TimeChart(pair, {
    title: "Low-watermark behind the clock",
    height: 200,
    sync: "freshness",
    onzoom,
    series: [{ label: "behind", color: "--c3", fill: true }],
  });
  const rates = new TimeChart(pair, {
    title: "Rows per second",
    height: 200,
    sync: "freshness",
    onzoom,
    value: count,
    series: [
      { label: "arrived", color: "--c1" },
      { label: "applied", color: "--c3" },
      { label: "superseded", color: "--c5", dash: [4, 3] },
    ],
  });
  const waiting = new TimeChart(pair, {
    title: "Keys that wait in the queue",
    height: 200,
    sync: "freshness",
    onzoom,
    value: count,
    series: [{ label: "waiting", color: "--c2", fill: true, stepped: true }],
  });
  const charts = [ages, above, behind, rates, waiting];

  function choose(seconds) {
    span = seconds;
    zoom = null;
    follow();
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(SPANS[at][1] === span)));
    load();
  }

  function follow() {
    for (const each of [ages, behind, rates, waiting]) each.runTo(zoom ? null : api.verdict);
  }

  async function load() {
    const to = zoom ? Math.round(zoom[1] * 1e6) : null;
    const last = api.verdict?.commit?.committed_at_us ?? Math.round(api.now());
    const from = zoom ? Math.round(zoom[0] * 1e6) : span ? Math.max(last - span * 1e6, 0) : null;
    const [history, heat] = await Promise.all([api.get("/summaries", { from, to, points: 800 }), api.get("/heatmap", { from, to })]);
    const c = history.columns;
    const at = c.at_s ?? [];
    const column = (name) => c[name] ?? at.map(() => null);
    ages.set([at, column("max_s"), column("p99_s"), column("p50_s")]);
    behind.set([at, column("behind_s")]);
    rates.set([at, column("updates_per_s"), column("applied_per_s"), column("superseded_per_s")]);
    waiting.set([at, column("pending")]);
    map.set(heat);
    above.set([heat.above.map((each) => each[0]), heat.above.map((each) => (each[1] > 0 ? each[1] : null))]);
    if (!history.commits) {
      replace(note, "No commits in this time. Choose a longer span.");
      return;
    }
    replace(note, `${count(history.commits)} commits${zoom ? ". Double-click a chart to leave the zoom" : ". Drag over a chart to zoom"}.`, history.target ? ` The target is ${history.target}.` : "");
  }

  if (!api.table) root.prepend(empty("No table yet"));
  else await load();
  const soon = calm(load, 3000);
  return {
    refresh: load,
    onVerdict: follow,
    onCommit: (commit) => {
      if (zoom) return;
      ages.push([commit.committed_at_us / 1e6, commit.staleness?.max, commit.staleness?.p99, commit.staleness?.p50]);
      soon();
    },
    dispose() {
      soon.cancel();
      charts.forEach((each) => each.dispose());
      map.dispose();
    },
  };
}
