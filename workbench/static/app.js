// The router: one page at a time, one stream of events for the chosen table.

import { el, problem, replace } from "./dom.js";

const NAMES = ["overview", "why", "control"];

const state = { table: null, page: null, shown: null, events: null, turn: 0 };

export const api = {
  get table() { return state.table; },
  async get(path, params = {}) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ table: state.table, ...params })) {
      for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
    }
    return answer(await fetch(`/api/v1${path}?${query}`));
  },
  async send(method, path, body = {}, params = {}) {
    const query = new URLSearchParams({ ...(state.table === null ? {} : { table: state.table }), ...params });
    const headers = { "Content-Type": "application/json" };
    return answer(await fetch(`/api/v1${path}?${query}`, { method, headers, body: JSON.stringify(body) }));
  },
};

async function answer(response) {
  const found = response.headers.get("content-type")?.includes("json") ? await response.json() : await response.text();
  if (!response.ok) throw typeof found === "string" ? { error: found } : found;
  return found;
}

const pages = new Map();
for (const name of NAMES) pages.set(name, await import(`./pages/${name}.js`));

async function show() {
  const [name, query = ""] = location.hash.replace(/^#\//, "").split("?");
  const page = pages.get(name) ?? pages.get(NAMES[0]);
  const params = new URLSearchParams(query);
  const wanted = params.get("table");
  if (wanted && wanted !== state.table) choose(wanted);
  const turn = ++state.turn;
  state.shown?.dispose?.();
  state.shown = null;
  const root = document.getElementById("page");
  const fresh = el("section", { class: `page-${name}` }, el("h1", {}, page.title));
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  replace(root, fresh);
  try {
    const shown = await page.render(fresh, api, params);
    if (turn === state.turn) state.shown = shown;
    else shown?.dispose?.();
  } catch (error) {
    fresh.append(problem(error));
  }
}

function choose(table) {
  state.table = table;
  document.getElementById("table").value = table;
  follow();
}

function follow() {
  state.events?.close();
  if (state.table === null) return;
  const connection = document.getElementById("connection");
  const events = new EventSource(`/api/v1/events?table=${encodeURIComponent(state.table)}`);
  events.onopen = () => { connection.textContent = "live"; connection.className = "live"; };
  events.onerror = () => { connection.textContent = "reconnecting"; connection.className = "lost"; };
  events.addEventListener("commit", (event) => state.shown?.onCommit?.(JSON.parse(event.data)));
  state.events = events;
}

async function begin() {
  const nav = document.getElementById("pages");
  const order = [...pages].sort((one, other) => one[1].order - other[1].order);
  replace(nav, order.map(([name, page]) => el("a", { href: `#/${name}`, "data-page": name }, page.title)));
  const found = await answer(await fetch("/api/v1/tables"));
  const select = document.getElementById("table");
  replace(select, found.tables.map((each) => el("option", { value: each.name }, each.name)));
  select.addEventListener("change", () => { choose(select.value); show(); });
  if (found.tables.length) choose(found.tables[0].name);
  window.addEventListener("hashchange", show);
  await show();
}

begin().catch((error) => replace(document.getElementById("page"), problem(error)));
