import { count, duration, el, grid, problem, replace, svg } from "../dom.js";

export const title = "Plan";
export const order = 4;

const REFRESH_MS = 1000;
const PARAMS = ["root", "depth", "version", "job", "text"];

/** Load the style sheet of plans and queries once. */
export function styled() {
  if (!document.head.querySelector('link[href="/static/plan.css"]')) document.head.append(el("link", { rel: "stylesheet", href: "/static/plan.css" }));
}

/** Ask again while the server still binds the queries of a large job. */
export async function patiently(ask, tries = 4) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (--tries <= 0 || !/takes longer/.test(error.error ?? error.message ?? "")) throw error;
    }
  }
}

/** Return the picture of a plan as an element; `chosen` is called with the name of a step, `rows` with an edge. */
export function picture(text, chosen = null, rows = null) {
  const root = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  if (chosen === null) return root;
  const choices = [...root.querySelectorAll("[data-node]")].map((node) => [node, node.querySelector("text")?.textContent ?? "step", () => chosen(node.dataset.node)]);
  for (const edge of rows === null ? [] : root.querySelectorAll("[data-from]")) {
    const wide = edge.querySelector("path").cloneNode();
    wide.setAttribute("class", "wide");
    edge.append(wide);
    choices.push([edge, "rows on this edge", () => rows(edge.dataset.from, edge.dataset.to)]);
  }
  for (const [node, label, choose] of choices) {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", label);
    const take = () => {
      root.querySelector(".chosen")?.classList.remove("chosen");
      node.classList.add("chosen");
      choose();
    };
    node.addEventListener("click", take);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); take(); } });
  }
  return root;
}

const BAR = 24;

/** Return the parts of a batch's time as a flame, and as a list. */
function flame(spans) {
  const whole = Math.max(...spans.map((each) => each.start_s + each.seconds));
  const part = (seconds) => `${((100 * seconds) / whole).toFixed(3)}%`;
  const text = (each) => `${each.name}: ${duration(each.seconds)}${each.measured ? "" : ", not measured inside"}`;
  const deep = Math.max(...spans.map((each) => each.depth)) + 1;
  return [
    svg("svg", { class: "flame", width: "100%", height: deep * BAR, role: "img", "aria-label": `where the batch's ${duration(whole)} went` }, spans.map((each) =>
      svg("svg", { class: each.measured ? `depth-${each.depth}` : "unmeasured", x: part(each.start_s), y: each.depth * BAR, width: part(each.seconds), height: BAR - 2 },
        svg("title", {}, text(each)), svg("rect", { width: "100%", height: "100%" }), svg("text", { x: 4, y: 15 }, each.name)))),
    el("ul", { class: "flame-list" }, spans.map((each) => el("li", {}, text(each)))),
  ];
}

export async function render(root, api, params) {
  styled();
  const asked = Object.fromEntries(PARAMS.filter((name) => params.get(name)).map((name) => [name, params.get(name)]));
  const sentence = el("p", { class: "plan-sentence", "aria-live": "polite" });
  const note = el("p", { class: "plan-legend" });
  const frame = el("div", { class: "plan-picture", tabindex: "0", role: "region", "aria-label": "the plan" });
  const detail = el("div", { class: "plan-detail", "aria-live": "polite" });
  const times = el("section", { class: "plan-times" });
  const version = el("input", { type: "number", min: "0", "aria-label": "version of the table", onchange: () => { asked.version = version.value; draw(); } });
  const step = (by) => () => { asked.version = String(Math.max(Number(version.value) + by, 0)); draw(); };
  const before = el("button", { "aria-label": "the commit before", onclick: step(-1) }, "◀");
  const after = el("button", { "aria-label": "the next commit", onclick: step(1) }, "▶");
  const latest = el("button", { onclick: () => { delete asked.version; draw(); } }, "latest");
  const whole = el("button", { onclick: () => { delete asked.root; delete asked.text; draw(); } }, "whole plan");
  const deeper = el("button", { onclick: () => { asked.depth = String(Math.min(Number(asked.depth ?? 12) + 12, 100)); draw(); } }, "more steps");
  root.append(sentence, el("div", { class: "plan-bar" },
    el("span", {}, "at version "), before, version, after, latest, whole, deeper), frame, note, detail, times);
  let shown = null;
  let waiting = null;
  let gone = false;
  let turn = 0;
  let sampling = 0;

  async function draw() {
    const mine = ++turn;
    try {
      const plan = await patiently(() => api.get("/plan", asked));
      const text = await api.get("/plan.svg", asked);
      if (gone || mine !== turn) return;
      const scroll = [frame.scrollLeft, frame.scrollTop];
      shown = plan;
      const held = frame.contains(document.activeElement) ? { ...document.activeElement.dataset } : null;
      const marked = { ...frame.querySelector(".chosen")?.dataset };
      replace(frame, picture(text, choose, chooseEdge));
      find(marked)?.classList.add("chosen");
      if (held !== null) (find(held) ?? frame).focus({ preventScroll: true });
      [frame.scrollLeft, frame.scrollTop] = scroll;
      if (plan.version !== null) version.value = String(plan.version);
      for (const each of [before, version, after, latest]) each.disabled = plan.version === null;
      whole.disabled = !asked.root && !asked.text;
      deeper.disabled = !plan.nodes.some((each) => each.hidden);
      sentence.textContent = plan.wait ? capital(plan.wait.sentence) : plan.version === null && plan.queries === null ? "No query has committed yet." : "";
      replace(times, plan.spans.length ? [el("h2", {}, "Where the time of the batch went"), flame(plan.spans)] : "");
      note.textContent = `Choose a step for its figures, an arrow for its rows. ${plan.wait && plan.wait.path.length ? "The orange path shows what the oldest answer waits for. " : ""}Dashed steps are shared by several queries.`;
    } catch (error) {
      if (!gone && mine === turn) replace(frame, problem(error));
    }
  }

  function find({ node, from, to }) {
    return [...frame.querySelectorAll("[role=button]")].find((each) => (node ? each.dataset.node === node : from && each.dataset.from === from && each.dataset.to === to));
  }

  function chooseEdge(from, to) {
    const edge = shown.edges.find((each) => each.from === from && each.to === to);
    const named = (name) => shown.nodes.find((each) => each.name === name)?.title ?? name;
    sampling += 1;
    replace(detail, el("h2", {}, `Rows from ${named(from)} to ${named(to)}`),
      edge.samples.length ? edge.samples.map((each) => sample(each, sampling))
        : el("p", {}, shown.queries === null ? "Spark alone handles the rows here. Rows can be shown where they leave a source or a queue, and where they come to the table."
          : "No batch evaluates this step alone. The next arrow has its rows."));
  }

  /** Show the last sample of an entity's rows, and ask for another one. */
  function sample(entity, mine) {
    const state = el("p", { class: "quiet", role: "status" });
    const rows = el("div", {});
    const at = { checkpoint: shown.checkpoint };
    const said = entity === "sink" ? "that come to the table, one for each key" : entity.startsWith("part/") ? "that change here; a weight below 0 takes rows back" : `that leave ${entity}`;
    async function look() {
      if (gone || mine !== sampling) return;
      try {
        const found = await api.get(`/samples/${entity}`, at);
        const waits = found.asked !== null && found.asked > found.version;
        replace(state, waits ? "The next batch with rows takes the request." : found.rows.length ? `Batch ${found.batches.join(", ")}; requested by change ${found.version} of the settings.` : "No rows have been requested here.");
        replace(rows, found.rows.length ? grid(found.columns.map((name, at) => ({ label: name, text: (row) => row[at] })), found.rows) : "");
        if (waits) setTimeout(look, REFRESH_MS);
      } catch (error) {
        replace(state, problem(error));
      }
    }
    async function ask() {
      try {
        const now = await api.get(`/entities/${entity}`, at);
        await api.send("PATCH", `/entities/${entity}`, { version: now.version, attribute: "sample", value: "now" }, at);
      } catch (error) {
        return replace(state, problem(error));
      }
      return look();
    }
    look();
    return el("section", { class: "plan-sample" }, el("p", {}, `Rows ${said} `, el("button", { disabled: !control, onclick: ask }, "show rows")), state, rows);
  }

  function choose(name) {
    sampling += 1;
    const node = shown.nodes.find((each) => each.name === name);
    if (!node) return;
    const facts = [...node.figures.filter((each) => each.value !== null).map((each) => [each.name, `${typeof each.value === "number" ? count(each.value) : each.value} ${each.unit}`])];
    replace(detail, el("h2", {}, node.title),
      node.facts.map((each) => el("p", {}, each)),
      el("dl", { class: "figures" }, facts.map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]).flat()),
      node.shared.length ? el("p", {}, "Shared with ", node.shared.map((each) => [el("a", { href: `#/plan?root=${encodeURIComponent(`query:${each}`)}${asked.job ? `&job=${encodeURIComponent(asked.job)}` : ""}` }, each), " "]).flat()) : null,
      el("div", { class: "plan-bar" },
        name.startsWith("query:") && name !== "query:" ? el("a", { href: `#/queries?name=${encodeURIComponent(name.slice(6))}` }, "open the query") : null,
        name.startsWith("part:") || name.startsWith("partition:") || name === "more" ? null
          : el("button", { onclick: () => { asked.root = name; draw(); } }, "show what it reads")));
  }

  const { control } = await api.get("/tables");
  await draw();
  return {
    onCommit() {
      if (asked.version || waiting !== null) return;
      waiting = setTimeout(() => { waiting = null; draw(); }, REFRESH_MS);
    },
    dispose() {
      gone = true;
      clearTimeout(waiting);
    },
  };
}

function capital(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
