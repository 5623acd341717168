// The frame around the pages: routes, the table, the connection, the keyboard.

import { badge, duration, el, problem, replace, say } from "./dom.js";

const KEYS = { tables: "l", overview: "o", freshness: "f", inputs: "i", plan: "p", why: "y", queries: "q", top: "n", table: "b", whatif: "w", control: "c", letters: "d" };
const RETRY_MS = [250, 500, 1000, 2000, 4000];

const $ = (id) => document.getElementById(id);
const pages = new Map();
let names = []; // of the pages that the server has
let tables = [];
let total = 0; // tables, and places that cannot be read
let shown = null; // the page in view: {name, params, handle, disposed}
let clockOffsetUs = 0;
let seeking = null;
let filtering = false; // whether the next page gets the focus in its first field

/** An answer that is no answer, in the server's words. */
class ApiError extends Error {
  constructor(status, document) {
    super(document.error ?? `the server answered ${status}`);
    Object.assign(this, document, { status });
  }
}

async function call(method, path, { params = {}, body, signal } = {}) {
  const url = new URL(`/api/v1${path}`, location.origin);
  for (const [name, value] of Object.entries({ ...(api.table && { table: api.table }), ...params })) {
    if (value === null || value === undefined || value === "") continue;
    url.searchParams.delete(name);
    for (const each of [value].flat()) url.searchParams.append(name, each);
  }
  let answer;
  try {
    answer = await fetch(url, {
      method,
      signal,
      credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { error: "The workbench's server does not answer.", hint: "The page reconnects by itself when the server is back." });
  }
  const text = await answer.text();
  const json = (answer.headers.get("Content-Type") ?? "").includes("json");
  const found = json && text ? JSON.parse(text) : text;
  if (answer.status === 401) {
    throw new ApiError(401, { error: "This browser's session has ended.", hint: "Open the address that `upstream ui` printed." });
  }
  if (!answer.ok) throw new ApiError(answer.status, json ? found : {});
  return found;
}

/** What pages get: requests for the chosen table, the server's clock, and links. */
const api = {
  table: null,
  verdict: null,
  nothing: ["No table yet", "Spark takes a while to start, and the first commit makes the table. If no query has been started, start one that writes a table here: the page shows it within ten seconds."],
  get: (path, params, options = {}) => call("GET", path, { params, ...options }),
  send: (method, path, body, params) => call(method, path, { params, body }),
  now: () => Date.now() * 1e3 + clockOffsetUs,
  setClock: (us) => (clockOffsetUs = us - Date.now() * 1e3),
  paused: () => paused(),
  /** Show whether the server answers, on a page without a stream of commits. */
  answers: (well) => api.table || paused() || connection(well ? "live" : "offline"),
  link: (page, params = {}) => `#/${page}${queryOf({ ...(api.table && page !== "tables" && { table: api.table }), ...params })}`,
  go: (page, params = {}) => (location.hash = api.link(page, params)),
};

function queryOf(params) {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return kept.length ? `?${new URLSearchParams(kept.flatMap(([name, value]) => [value].flat().map((each) => [name, each])))}` : "";
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const first = total > 1 || !pages.has("overview") ? "tables" : "overview";
  return { name: pages.has(path) ? path : first, params: new URLSearchParams(query) };
}

async function show() {
  const { name, params } = route();
  const list = name === "tables";
  const table = params.get("table") ?? api.table ?? (list ? null : tables[0]?.name) ?? null;
  const other = table !== api.table;
  api.table = table;
  document.body.dataset.page = name;
  say($("table"), table ?? "");
  shown?.dispose();
  if (shown && (other || shown.name !== name)) scrollTo(0, 0);
  for (const link of $("pages").children) {
    link.href = api.link(link.dataset.page);
    link.hidden = list && !table && link.dataset.page !== name;
    if (link.dataset.page === name) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  const page = pages.get(name);
  document.title = list ? "Tables · UpStream" : `${page.title} · ${table ?? "no table"} · UpStream`;
  const root = el("div", { class: `stack page-${name}`, dataset: { page: name } });
  const mine = { name, handle: null, gone: false };
  mine.dispose = () => {
    mine.gone = true;
    mine.handle?.dispose?.();
  };
  shown = mine;
  if (!tables.length) seek();
  replace($("main"), el("h1", {}, page.title), root);
  if (other) {
    api.verdict = null;
    feed.open();
  } else if (!table) api.answers(true);
  try {
    const handle = await page.render(root, api, params);
    mine.handle = handle;
    if (mine.gone) handle?.dispose?.();
    else if (api.verdict) handle?.onVerdict?.(api.verdict);
    else header();
    root.dataset.ready = "true";
    if (filtering) root.querySelector("input")?.focus();
    filtering = false;
  } catch (error) {
    if (mine.gone || error.name === "AbortError") return;
    replace(root, problem(error));
    root.dataset.ready = "true";
    header();
  }
}

/** The stream of commits. The table's version is the id of an event, so a reconnect asks for what it missed. */
const feed = {
  source: null,
  version: null,
  tries: 0,
  timer: null,
  open() {
    this.close();
    this.version = null;
    this.connect();
  },
  connect() {
    clearTimeout(this.timer);
    if (paused()) return;
    if (!api.table) return connection("live");
    const after = this.version === null ? {} : { after: this.version };
    const source = new EventSource(`/api/v1/events${queryOf({ table: api.table, ...after })}`);
    this.source = source;
    source.onopen = () => {
      const back = this.tries > 0;
      this.tries = 0;
      connection("live");
      if (back) again();
    };
    source.addEventListener("commit", (event) => {
      const version = Number(event.lastEventId);
      if (this.version !== null && version <= this.version) return;
      this.version = version;
      document.body.dataset.version = version;
      shown?.handle?.onCommit?.(JSON.parse(event.data));
    });
    source.addEventListener("verdict", (event) => judge(JSON.parse(event.data)));
    source.onerror = () => {
      // A browser gives up after an answer that is no stream: then the page tries by itself.
      source.close();
      connection("offline");
      if (this.tries) api.get("/overview").catch((error) => error.status === 401 && connection("refused"));
      const wait = RETRY_MS[Math.min(this.tries, RETRY_MS.length - 1)];
      this.tries += 1;
      this.timer = setTimeout(() => this.connect(), wait);
    };
  },
  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  },
};

const WORDS = { live: "live", paused: "paused", offline: "reconnecting", refused: "restarted: open its address again" };

function connection(state) {
  $("live").dataset.live = state;
  say($("live"), WORDS[state]);
  document.body.dataset.live = state;
}

function paused() {
  return $("pause").getAttribute("aria-pressed") === "true";
}

function pause() {
  const now = !paused();
  $("pause").setAttribute("aria-pressed", String(now));
  say($("pause"), now ? "Resume" : "Pause");
  if (now) {
    feed.close();
    connection("paused");
  } else {
    feed.tries = 1; // what was missed while paused is fetched again
    feed.connect();
  }
}

function again() {
  if (shown?.handle?.refresh) shown.handle.refresh();
  else show();
}

/** Take a table's verdict, which the server computes once for all browsers. */
function judge(found) {
  if (found.table !== api.table) return;
  api.verdict = found;
  api.setClock(found.now_us);
  if ($("state").firstChild?.dataset.state !== found.state) replace($("state"), badge(found.state));
  say($("place"), found.location);
  // The address comes from the storage: nothing but a page's is a link.
  const pages = /^https?:\/\//.test(found.spark ?? "") ? found.spark : null;
  $("spark").hidden = pages === null;
  if (pages) $("spark").href = pages;
  shown?.handle?.onVerdict?.(found);
}

async function header() {
  if (!api.table) return;
  try {
    judge(await api.get("/overview"));
  } catch {
    replace($("state"));
  }
}

async function listTables() {
  const found = await call("GET", "/tables", { params: { only: "names" } });
  tables = found.tables;
  total = found.total;
  names = found.pages;
  api.control = found.control;
  api.checkpoints = found.checkpoints;
}

/** Look for a table until there is one. */
function seek() {
  clearTimeout(seeking);
  seeking = setTimeout(async () => {
    await listTables().then(() => api.answers(true), () => api.answers(false));
    if (tables.length) show();
    else seek();
  }, 1000);
}

function chooseTable() {
  if (shown?.name === "tables") return $("filter")?.select();
  filtering = true;
  location.hash = "#/tables";
}

function step(by) {
  const order = [...pages.keys()].filter((name) => api.table || name === "tables");
  api.go(order[(order.indexOf(shown?.name) + by + order.length) % order.length]);
}

const COMMANDS = {
  "?": ["Show this list", () => $("keys").showModal()],
  "[": ["Previous page", () => step(-1)],
  "]": ["Next page", () => step(1)],
  t: ["Choose another table", () => chooseTable()],
  "/": ["Go to the first field of the page", () => $("main").querySelector("input, textarea, select")?.focus()],
  r: ["Load the page again", () => again()],
  ".": ["Pause or resume updates", () => pause()],
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && event.target.matches("input, textarea, select")) event.target.blur();
  if ($("keys").open || event.target.closest("input, textarea, select, [contenteditable]")) return;
  const page = Object.keys(KEYS).find((name) => KEYS[name] === event.key && pages.has(name));
  const command = COMMANDS[event.key]?.[1] ?? (page && (() => api.go(page)));
  if (!command) return;
  event.preventDefault();
  command();
}

function listKeys() {
  const lines = [
    ...Object.entries(COMMANDS).map(([key, [text]]) => [key, text]),
    ...[...pages].filter(([name]) => KEYS[name]).map(([name, page]) => [KEYS[name], page.title]),
    ["Esc", "Leave a field, or close this list"],
  ];
  replace(document.querySelector("#keys .keys"), lines.map(([key, text]) => [el("div", {}, el("kbd", {}, key)), el("div", {}, text)]));
}

async function start() {
  try {
    await listTables();
  } catch (error) {
    replace($("main"), problem(error));
    return setTimeout(start, 2000);
  }
  const found = await Promise.allSettled(names.map((name) => import(`./pages/${name}.js`)));
  const made = names.map((name, at) => [name, found[at].value]).filter(([, module]) => module?.render);
  for (const [name, module] of made.sort((one, other) => one[1].order - other[1].order)) pages.set(name, module);
  replace($("pages"), [...pages].map(([name, page]) => el("a", { href: `#/${name}`, dataset: { page: name } }, page.title)));
  listKeys();
  addEventListener("hashchange", show);
  addEventListener("keydown", onKey);
  $("pause").addEventListener("click", pause);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("keys-close").addEventListener("click", () => $("keys").close());
  setInterval(() => {
    for (const each of document.querySelectorAll("[data-since]")) say(each, duration((api.now() - Number(each.dataset.since)) / 1e6));
  }, 1000);
  await show();
}

start();
