// Which table needs a look? All of them, the worst first; each leads to its Overview.

import { badge, calm, count, duration, el, empty, moment, problem, replace, say, since, svg } from "../dom.js";

export const title = "Tables";
export const order = 0;

const LIMIT = 200;
const [SOON_MS, OFTEN_MS, MANY_MS, MANY] = [400, 2000, 5000, 100];
const COLUMNS = ["State", "Table", "Staleness now", "p99 lately", "Target", "Complete up to", "Last commit"];
const [WIDE, HIGH] = [80, 24];

export async function render(root, api, params) {
  const filter = el("input", { id: "filter", type: "search", value: params.get("filter") ?? "", autocomplete: "off", spellcheck: false, placeholder: "part of a name" });
  const sum = el("p", { class: "muted" });
  const note = el("div");
  const head = el("thead", {}, el("tr", {}, COLUMNS.map((each) => el("th", { scope: "col" }, each))));
  const table = el("table", {}, el("caption", { class: "sr" }, "Tables, the worst first"), head);
  const list = el("div", { class: "grid list" }, table);
  const form = el("form", { class: "row", onsubmit: open }, el("div", { class: "field" }, el("label", { htmlFor: "filter" }, "Filter; Enter opens the first"), filter));
  root.append(form, sum, note, list);
  const lines = new Map();
  let [timer, turn, gone] = [null, 0, false];

  async function refresh() {
    const mine = ++turn;
    clearTimeout(timer);
    let wait = OFTEN_MS;
    try {
      const found = await api.get("/tables", { filter: filter.value, limit: LIMIT });
      if (gone || mine !== turn) return;
      api.setClock(found.now_us);
      api.answers(true);
      draw(found);
      if (found.total > MANY) wait = MANY_MS;
      if (found.states.unread) wait = SOON_MS;
    } catch (error) {
      if (gone || mine !== turn) return;
      api.answers(false);
      replace(note, problem(error));
    }
    timer = setTimeout(() => (api.paused() ? (timer = setTimeout(refresh, OFTEN_MS)) : refresh()), wait);
  }

  function draw(found) {
    const states = Object.entries(found.states).map(([state, many]) => `${count(many)} ${state}`);
    say(sum, `${count(found.total)} ${found.total === 1 ? "table" : "tables"}${states.length ? `: ${states.join(", ")}` : ""}`);
    const hidden = found.matching - found.tables.length;
    if (!found.total) replace(note, empty(...api.nothing));
    else replace(note, found.matching ? hidden > 0 && el("p", { class: "muted" }, `The worst ${count(LIMIT)} are shown. Filter by name for the other ${count(hidden)}.`) : el("p", {}, `No name has “${filter.value}”.`));
    list.hidden = !found.tables.length;
    const focus = document.activeElement;
    const shown = new Set();
    let at = head.nextSibling;
    for (const row of found.tables) {
      const key = row.location;
      shown.add(key);
      if (!lines.has(key)) lines.set(key, line(row, api));
      const { body, set } = lines.get(key);
      set(row);
      if (body === at) at = at.nextSibling;
      else table.insertBefore(body, at);
    }
    for (const [key, { body }] of lines) {
      if (shown.has(key)) continue;
      body.remove();
      lines.delete(key);
    }
    if (focus !== document.activeElement && root.contains(focus)) focus.focus({ preventScroll: true });
  }

  async function open(event) {
    event.preventDefault();
    await refresh();
    const first = table.querySelector("a");
    if (first) location.hash = first.getAttribute("href");
  }

  const typed = calm(() => {
    history.replaceState(null, "", api.link("tables", { filter: filter.value }));
    refresh();
  }, 150);
  filter.addEventListener("input", typed);
  await refresh();
  return {
    refresh,
    dispose() {
      gone = true;
      typed.cancel();
      clearTimeout(timer);
    },
  };
}

/** Return a row of the list, and the function that updates it in place, so that a link keeps the focus. */
function line(row, api) {
  const link = row.version === null ? el("span", {}, row.name) : el("a", { href: api.link("overview", { table: row.name }) }, row.name);
  const [state, chart, commit] = [el("td", { class: "state" }), el("td", { class: "spark" }), el("td", { dataset: { label: COLUMNS[6] } })];
  const why = el("td", { class: "why", colSpan: COLUMNS.length - 1 });
  const more = el("tr", {}, el("td"), why);
  const [stale, target, complete] = [2, 4, 5].map((at) => el("td", { dataset: { label: COLUMNS[at] } }));
  const body = el("tbody", {}, el("tr", {}, state, el("td", { class: "name", title: row.location }, link), stale, chart, target, complete, commit), more);
  let [points, committed] = ["", null];
  function set(found) {
    if (state.firstChild?.dataset.state !== found.state) replace(state, badge(found.state));
    say(why, found.why ?? "");
    more.hidden = !found.why;
    const now = found.staleness_now;
    say(stale, found.idle ? "nothing waits" : now ? `${found.at_least ? "≥ " : ""}${duration(now.mean)}` : "–");
    stale.title = now && !found.idle ? `p50 ${duration(now.p50)}, p99 ${duration(now.p99)}, max ${duration(now.max)}` : "";
    const verdict = now ? { true: ", met", false: ", missed" }[found.target_met] : null; // not of a time that is over
    say(target, found.target ? `${found.target.replaceAll(" ", "\u00a0")}${verdict ?? ""}` : "–");
    target.className = verdict && !found.target_met ? "target bad" : "target";
    say(complete, found.all_ended ? "the end" : timeOf(found.complete_up_to));
    complete.title = moment(found.complete_up_to);
    if (committed !== found.committed_at_us) {
      committed = found.committed_at_us;
      replace(commit, committed ? [since(committed, api.now()), " ago"] : "–");
    }
    const text = JSON.stringify(found.chart ?? []);
    if (points !== text) {
      points = text;
      replace(chart, sparkline(found.chart ?? []));
    }
  }
  return { body, set };
}

/** Return a time without its date if that is today's. */
function timeOf(bound) {
  const text = moment(bound);
  return text.startsWith(new Date().toISOString().slice(0, 10)) ? `${text.slice(11, 19)} UTC` : text.replace(/\.\d+ UTC$/, " UTC");
}

/** Return staleness over time, small: a line, or dots for one or two points. */
function sparkline(points) {
  if (!points.length) return "";
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const most = Math.max(...points.map(([, value]) => value), 1e-9);
  const place = ([at, value]) => [2 + ((WIDE - 4) * (at - first)) / Math.max(last - first, 1e-9), HIGH - 2 - ((HIGH - 4) * value) / most];
  const label = `staleness p99 up to ${duration(most)} within ${duration(last - first)}`;
  return svg("svg", { class: "sparkline", width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label },
    svg("title", {}, label),
    points.length > 2
      ? svg("polyline", { points: points.map((each) => place(each).map((n) => n.toFixed(1)).join(",")).join(" ") })
      : points.map((each) => svg("circle", { cx: place(each)[0], cy: place(each)[1], r: 2 })));
}
