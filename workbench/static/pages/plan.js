import { count, el, problem, replace } from "../dom.js";

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

/** Return the picture of a plan as an element; `chosen` is called with the name of a step. */
export function picture(text, chosen = null) {
  const root = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  if (chosen === null) return root;
  for (const node of root.querySelectorAll("[data-node]")) {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", node.querySelector("text")?.textContent ?? "step");
    const take = () => {
      root.querySelector(".chosen")?.classList.remove("chosen");
      node.classList.add("chosen");
      chosen(node.dataset.node);
    };
    node.addEventListener("click", take);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); take(); } });
  }
  return root;
}

export async function render(root, api, params) {
  styled();
  const asked = Object.fromEntries(PARAMS.filter((name) => params.get(name)).map((name) => [name, params.get(name)]));
  const sentence = el("p", { class: "plan-sentence", "aria-live": "polite" });
  const note = el("p", { class: "plan-legend" });
  const frame = el("div", { class: "plan-picture", tabindex: "0", role: "region", "aria-label": "the plan" });
  const detail = el("div", { class: "plan-detail", "aria-live": "polite" });
  const version = el("input", { type: "number", min: "0", "aria-label": "version of the table", onchange: () => { asked.version = version.value; draw(); } });
  const step = (by) => () => { asked.version = String(Math.max(Number(version.value) + by, 0)); draw(); };
  const before = el("button", { "aria-label": "the commit before", onclick: step(-1) }, "◀");
  const after = el("button", { "aria-label": "the next commit", onclick: step(1) }, "▶");
  const latest = el("button", { onclick: () => { delete asked.version; draw(); } }, "latest");
  const whole = el("button", { onclick: () => { delete asked.root; delete asked.text; draw(); } }, "whole plan");
  const deeper = el("button", { onclick: () => { asked.depth = String(Math.min(Number(asked.depth ?? 12) + 12, 100)); draw(); } }, "more steps");
  root.append(sentence, el("div", { class: "plan-bar" },
    el("span", {}, "at version "), before, version, after, latest, whole, deeper), frame, note, detail);
  let shown = null;
  let waiting = null;
  let gone = false;
  let turn = 0;

  async function draw() {
    const mine = ++turn;
    try {
      const plan = await patiently(() => api.get("/plan", asked));
      const text = await api.get("/plan.svg", asked);
      if (gone || mine !== turn) return;
      const scroll = [frame.scrollLeft, frame.scrollTop];
      shown = plan;
      replace(frame, picture(text, choose));
      [frame.scrollLeft, frame.scrollTop] = scroll;
      if (plan.version !== null) version.value = String(plan.version);
      for (const each of [before, version, after, latest]) each.disabled = plan.version === null;
      whole.disabled = !asked.root && !asked.text;
      deeper.disabled = !plan.nodes.some((each) => each.hidden);
      sentence.textContent = plan.wait ? capital(plan.wait.sentence) : plan.version === null && plan.queries === null ? "No query has committed yet." : "";
      note.textContent = plan.wait && plan.wait.path.length ? "The orange way is that of the oldest answer. Dashed steps are shared by several queries." : "Dashed steps are shared by several queries.";
    } catch (error) {
      if (!gone && mine === turn) replace(frame, problem(error));
    }
  }

  function choose(name) {
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
