import { bytes, clock, count, duration, el, moment, problem, replace } from "../dom.js";
import { patiently, picture, styled } from "./plan.js";

export const title = "Queries";
export const order = 6;

const PAGE = 50;
const POLL_MS = 1000;
const ORDERS = { registered: "as registered", name: "name", weight: "weight", staleness_s: "staleness", waiting_s: "waiting", cost_s: "cost", state_bytes: "state" };

export async function render(root, api, params) {
  styled();
  const asked = { offset: 0, limit: PAGE, order: "registered", search: "", ...(params.get("job") ? { job: params.get("job") } : {}) };
  const job = () => (asked.job ? { job: asked.job } : {});
  const head = el("p", { "aria-live": "polite" });
  const list = el("div", { class: "query-scroll", tabindex: "0", role: "region", "aria-label": "queries" });
  const pager = el("div", { class: "plan-bar" });
  const detail = el("div", { class: "query-detail" });
  const search = el("input", { type: "search", placeholder: "name or text", "aria-label": "search", oninput: () => { asked.search = search.value; asked.offset = 0; load(); } });
  const order = el("select", { "aria-label": "order", onchange: () => { asked.order = order.value; load(); } }, Object.entries(ORDERS).map(([value, name]) => el("option", { value }, name)));
  const jobs = el("select", { "aria-label": "job", onchange: () => { asked.job = jobs.value; asked.offset = 0; load(); } });
  const bar = el("div", { class: "plan-bar" }, jobs, search, order, el("button", { onclick: () => create(null) }, "new query"));
  root.append(head, bar, list, pager, detail);
  let gone = false;
  let turn = 0;
  let open = null; // the query that is shown below the list
  let timer = null;

  async function load() {
    const mine = ++turn;
    try {
      const found = await api.get("/queries", asked);
      if (gone || mine !== turn) return;
      bar.hidden = pager.hidden = found.job === null;
      if (found.job === null) {
        head.textContent = "";
        const place = api.verdict?.location ?? "TABLE";
        const unknown = { key: [{ name: "KEY" }], event_time: null };
        const keyed = api.table ? await api.get("/why").catch(() => unknown) : unknown;
        const names = { key: keyed.key.map((each) => each.name).join(", "), event_time: keyed.event_time ?? "TIME" };
        if (gone) return;
        replace(list, el("p", {}, "No job hosts queries here. Start one in another terminal, and open its page:"),
          el("pre", {}, `echo "CREATE SOURCE updates FROM 'latest:${place}' WITH (key = '${names.key}', event_time = '${names.event_time}');" > job.sql\nupstream run job.sql --to lake --ui`));
        return;
      }
      if (jobs.childElementCount !== found.jobs.length) replace(jobs, found.jobs.map((each) => el("option", { value: each }, each)));
      jobs.value = found.job;
      asked.job = found.job;
      const behind = found.version - Math.max(found.taken_version ?? 0, 0);
      const changes = !behind ? "all changes are taken" : `${count(behind)} ${behind === 1 ? "change waits" : "changes wait"} for the next batch`;
      head.textContent = `${count(found.registered)} ${found.registered === 1 ? "query" : "queries"}; ${found.runs ? "the job runs" : found.loss || "no process hosts them now"}; ${changes}${found.taken_batch === null ? "" : ` (last batch ${found.taken_batch})`}.`;
      replace(list, table(found.queries, found.now_us));
      follow(found);
      const last = Math.min(asked.offset + PAGE, found.total);
      replace(pager,
        el("button", { disabled: asked.offset === 0, onclick: () => { asked.offset = Math.max(asked.offset - PAGE, 0); load(); } }, "◀ before"),
        el("span", {}, found.total ? `${count(asked.offset + 1)} to ${count(last)} of ${count(found.total)}` : "no query"),
        el("button", { disabled: last >= found.total, onclick: () => { asked.offset += PAGE; load(); } }, "after ▶"));
    } catch (error) {
      if (!gone && mine === turn) replace(list, problem(error));
    }
  }

  // A figure that says nothing about now has its age.
  function staleness(row, now) {
    if (!row.past && row.staleness_now_s !== null) return duration(row.staleness_now_s);
    const then = row.committed_at_us === null ? "–" : el("span", { class: "muted" }, `${duration(row.staleness_s)}, ${duration((now - row.committed_at_us) / 1e6)} ago`);
    return row.staleness_now_s ? [duration(row.staleness_now_s), " (", then, ")"] : then;
  }

  function table(rows, now) {
    const heads = [["name"], ["state"], ["weight", 1], ["staleness p99", 1], ["waiting", 1], ["cost per batch", 1], ["state size", 1], ["late rows", 1], ["complete from"], ["text"]];
    const line = (row) => el("tr", {},
      el("td", {}, el("a", { href: `#/queries?name=${encodeURIComponent(row.name)}`, onclick: (event) => { event.preventDefault(); show(row.name); } }, row.name)),
      el("td", { title: row.reason ?? "" }, row.reason ? `${row.state}: ${row.reason}` : row.state),
      ...[[count(row.weight)], [staleness(row, now)], [duration(row.waiting_s)], [duration(row.cost_s), costText(row)], [bytes(row.state_bytes), stateText(row)], [count(row.late)]]
        .map(([each, title]) => el("td", { class: "num", title: title ?? null }, each)),
      el("td", {}, since(row)), el("td", { class: "text", title: row.text }, row.text));
    return el("table", {}, el("thead", {}, el("tr", {}, heads.map(([name, num]) => el("th", { scope: "col", class: num ? "num" : null }, name)))),
      el("tbody", {}, rows.length ? rows.map(line) : el("tr", {}, el("td", { colSpan: heads.length }, "No query."))));
  }

  // Another browser, or `upstream apply`, may change the open query.
  function follow(found) {
    if (open?.state === undefined) return;
    const row = found.queries.find((each) => each.name === open.name);
    if (row && stateOf(row) !== open.state && !(detail.contains(document.activeElement) && document.activeElement.matches("input"))) show(open.name, "It has changed.");
    if (!row && !asked.search && found.total <= PAGE) dropped(open.name);
  }

  function dropped(name) {
    close();
    replace(detail, el("p", { role: "status" }, `${name} was dropped.`));
  }

  function close() {
    clearTimeout(timer);
    open = null;
    replace(detail);
  }

  // With words, an open query is shown again after a change.
  async function show(name, words = null) {
    if (words === null) close();
    clearTimeout(timer);
    const mine = (open = { name });
    try {
      const [found, text] = await Promise.all([
        patiently(() => api.get(`/queries/${encodeURIComponent(name)}`, job())),
        patiently(() => api.get("/plan.svg", { ...job(), root: `query:${name}` })),
      ]);
      if (gone || open !== mine) return;
      mine.state = stateOf(found);
      replace(detail, ...described(found, text, mine, words ?? ""));
      if (words === null) detail.scrollIntoView({ block: "nearest" });
      results(found, mine);
    } catch (error) {
      if (!gone && open === mine) replace(detail, problem(error));
    }
  }

  function described(found, text, mine, words) {
    const weight = el("input", { type: "number", min: "0.001", step: "any", value: String(found.weight), "aria-label": "weight" });
    const said = el("p", { class: "query-error", role: "status" }, words);
    const act = async (method, body, words) => {
      try {
        await api.send(method, `/queries/${encodeURIComponent(found.name)}`, body, job());
        if (method === "DELETE") dropped(found.name);
        else show(found.name, words);
        load();
      } catch (error) {
        replace(said, problem(error));
      }
    };
    const kept = found.state_parts.map((each) => el("li", {}, `${each.part}: ${each.keeps}${each.bytes === null ? "" : `, ${bytes(each.bytes)}`}`,
      each.shared_with.length ? `; shared with ${each.shared_with.slice(0, 5).join(", ")}${each.shared_with.length > 5 ? ` and ${each.shared_with.length - 5} more` : ""}: 1/${each.shared_with.length + 1} of it` : ""));
    mine.frame = el("div", { class: "query-results query-scroll", tabindex: "0", role: "region", "aria-label": "results" });
    mine.pause = el("button", { "aria-pressed": "false", onclick: () => { mine.paused = !mine.paused; mine.pause.textContent = mine.paused ? "resume" : "pause"; mine.pause.setAttribute("aria-pressed", String(mine.paused)); } }, "pause");
    mine.sample = el("input", { type: "checkbox", onchange: () => { mine.version = null; } });
    mine.note = el("span");
    return [
      el("h2", {}, found.name), el("pre", {}, found.statement),
      el("div", { class: "plan-bar" }, el("label", {}, "weight ", weight),
        el("button", { onclick: () => act("PATCH", { weight: Number(weight.value) }, "The next batch takes the weight.") }, "set"),
        el("button", { onclick: () => act("PATCH", { active: !found.active }, found.active ? "The next batch pauses it." : "The next batch resumes it.") }, found.active ? "pause the query" : "resume the query"),
        found.active ? el("button", { onclick: () => act("PATCH", { active: false, keep_state: true }, "The next batch pauses it, and keeps its state.") }, "pause, keep its state") : "",
        el("button", { onclick: () => create(found) }, "edit the text"),
        el("button", { class: "danger", onclick: () => drop(found, act) }, "drop"),
        el("a", { href: `#/plan?root=${encodeURIComponent(`query:${found.name}`)}${asked.job ? `&job=${encodeURIComponent(asked.job)}` : ""}` }, "plan"),
        el("button", { onclick: close }, "close")), said,
      found.accuracy.length ? el("ul", {}, found.accuracy.map((each) => el("li", {}, each))) : el("p", {}, found.state === "running" ? "Its results are exact." : ""),
      el("h3", {}, "Cost and state"), found.cost_s === null ? null : el("p", {}, costText(found)), found.state_bytes === null ? null : el("p", {}, stateText(found)), kept.length ? el("ul", {}, kept) : el("p", {}, "It keeps no state."),
      el("h3", {}, "Results"), el("div", { class: "plan-bar" }, mine.pause, el("label", {}, mine.sample, " sample from all over the table"), mine.note), mine.frame,
      el("h3", {}, "Plan"), el("div", { class: "plan-picture" }, picture(text)),
    ];
  }

  async function results(found, mine) {
    if (gone || open !== mine) return;
    if (!mine.paused) {
      try {
        const rows = await api.get(`/queries/${encodeURIComponent(found.name)}/results`, { ...job(), ...(mine.sample.checked ? { sample: "true" } : {}), ...(mine.version === null || mine.version === undefined ? {} : { after: mine.version }) });
        if (gone || open !== mine) return;
        if (rows.version === null) replace(mine.frame, el("p", {}, "No batch has made its table yet."));
        else if (!rows.unchanged) {
          mine.version = rows.version;
          mine.note.textContent = `version ${count(rows.version)}; ${count(rows.rows.length)} of ${count(rows.total)} rows`;
          replace(mine.frame, el("table", {}, el("thead", {}, el("tr", {}, rows.columns.map((each, at) => el("th", { scope: "col", class: typeof rows.rows[0]?.[at] === "number" ? "num" : null }, each)))),
            el("tbody", {}, rows.rows.map((row) => el("tr", {}, row.map((each, at) => cell(each, rows.types[at])))))));
        }
      } catch (error) {
        if (!gone && open === mine) replace(mine.frame, problem(error));
      }
    }
    timer = setTimeout(() => results(found, mine), POLL_MS);
  }

  function drop(found, act) {
    const whole = el("input", { type: "checkbox" });
    const dialog = el("dialog", {}, el("p", {}, `Drop ${found.name}? Its results end with the next batch.`),
      el("p", {}, el("label", {}, whole, " delete its table too")),
      el("div", { class: "plan-bar" }, el("button", { class: "danger", onclick: () => { dialog.close(); act("DELETE", { delete_table: whole.checked }, "Dropped."); } }, "drop"),
        el("button", { autofocus: true, onclick: () => dialog.close() }, "keep")));
    dialog.addEventListener("close", () => dialog.remove());
    root.append(dialog);
    dialog.showModal();
  }

  async function create(edited) {
    close();
    const words = await api.get("/queries-words", job()).catch(() => null);
    const name = el("input", { placeholder: "name", "aria-label": "name", value: edited?.name ?? "", disabled: edited !== null });
    const weight = el("input", { type: "number", min: "0.001", step: "any", value: String(edited?.weight ?? 1), "aria-label": "weight" });
    const text = el("textarea", { class: "query-text", spellcheck: false, "aria-label": "query", value: edited?.text ?? "", placeholder: "SELECT …", oninput: complete, onkeydown: keys });
    const offers = el("div", { class: "query-words", "aria-live": "polite" });
    const said = el("pre", { class: "query-error", role: "status" });
    const plan = el("div", { class: "plan-picture" });
    let known = [];
    if (words) known = [...words.relations, ...words.columns, ...words.functions, ...words.keywords];

    function complete() {
      const start = /[\w.]*$/.exec(text.value.slice(0, text.selectionStart))[0];
      const found = start.length ? [...new Set(known)].filter((each) => each.toLowerCase().startsWith(start.toLowerCase()) && each !== start).slice(0, 8) : [];
      replace(offers, found.map((each) => el("button", { type: "button", onclick: () => take(each, start) }, each)));
    }

    function take(word, start) {
      const at = text.selectionStart;
      text.setRangeText(word, at - start.length, at, "end");
      text.focus();
      complete();
    }

    function keys(event) {
      const first = offers.querySelector("button");
      if (event.key === "Tab" && first && !event.shiftKey) { event.preventDefault(); first.click(); }
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    }

    function failed(error) {
      replace(said, error.line ? `Line ${error.line}, column ${error.column}: ${error.error}.${error.hint ? ` ${error.hint[0].toUpperCase()}${error.hint.slice(1)}${/[.?!]$/.test(error.hint) ? "" : "."}` : ""}\n${error.excerpt}` : problem(error));
      if (!error.line) return;
      const before = text.value.split("\n").slice(0, error.line - 1).join("\n").length + (error.line > 1 ? 1 : 0) + error.column - 1;
      text.focus();
      text.setSelectionRange(before, before + Math.max(/\^+/.exec(error.excerpt)?.[0].length ?? 1, 1));
    }

    async function explain() {
      replace(said);
      try {
        await patiently(() => api.get("/queries-plan", { ...job(), text: text.value }));
        replace(plan, picture(await api.get("/plan.svg", { ...job(), text: text.value })));
      } catch (error) {
        failed(error);
      }
    }

    async function save() {
      replace(said);
      try {
        if (edited) await api.send("PATCH", `/queries/${encodeURIComponent(edited.name)}`, { query: text.value, weight: Number(weight.value) }, job());
        else await api.send("POST", "/queries", { name: name.value, query: text.value, weight: Number(weight.value) }, job());
        load();
        show(name.value);
      } catch (error) {
        failed(error);
      }
    }

    replace(detail, el("h2", {}, edited ? `Edit ${edited.name}` : "New query"),
      el("div", { class: "plan-bar" }, name, el("label", {}, "weight ", weight)), text, offers, said,
      el("div", { class: "plan-bar" }, el("button", { onclick: save }, edited ? "change it" : "create"), el("button", { onclick: explain }, "explain"), el("button", { onclick: close }, "close")), plan);
    (edited ? text : name).focus();
  }

  await load();
  const again = setInterval(() => { if (!document.hidden && !gone) load(); }, 2 * POLL_MS);
  if (params.get("name")) show(params.get("name"));
  return {
    dispose() {
      gone = true;
      clearTimeout(timer);
      clearInterval(again);
    },
  };
}

function stateOf(query) {
  return JSON.stringify([query.text, query.weight, query.active, query.reason]);
}

function since({ complete_from_us: us, late }) {
  const time = us === null || us === undefined ? "–" : us < -6e16 ? "the beginning" : clock(us);
  return late ? `${time}, but for ${late === 1 ? "1 late row" : `${count(late)} late rows`}` : time;
}

/** Return a cell for a value of a type of Polars. Where its text is shorter than the value, a title has the value. */
function cell(value, type) {
  const whole = value === null ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value);
  let text = whole;
  if (typeof value === "number" && type.startsWith("Float")) text = String(Number(value.toPrecision(6)));
  if (type.startsWith("Datetime")) text = moment(whole.replace(" ", "T").replace(/\+00:00$/, "Z"));
  return el("td", { class: typeof value === "number" ? "num" : null, title: text === whole ? null : whole }, text);
}

/** Return the cost of a query in words; empty if nothing is known. */
function costText({ cost_s, costs: { results_s, evaluation_s } }) {
  if (cost_s === null) return "";
  const results = results_s === null ? "" : `${duration(results_s)} to write its results, and `;
  return `A batch takes ${results}${duration(evaluation_s.share)} to evaluate its parts: ${divided(evaluation_s, duration)}`;
}

function stateText({ state_bytes, costs }) {
  return state_bytes === null ? "" : `Its parts keep ${bytes(state_bytes)}: ${divided(costs.state_bytes, bytes)}`;
}

function divided({ share, whole, alone }, text) {
  const freed = `Dropping the query frees ${alone ? text(alone) : "nothing"}.`;
  return share === whole ? `no other query reads them. ${freed}` : `its share of ${text(whole)}, where each part counts by its number of readers. ${freed}`;
}
