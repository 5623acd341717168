import { clock, el, problem, replace } from "../dom.js";

export const title = "Control";
export const order = 10;

const MODES = {
  live: "A change takes effect with the next batch.",
  restart: "Set it when you start the query.",
  fixed: "The checkpoint fixes it.",
};

const text = (value) => (value === null || value === undefined ? "as started" : value === true ? "yes" : value === false ? "no" : String(value));

export async function render(root, api) {
  const state = el("p", { class: "quiet", role: "status" }, "Loading…");
  const tables = el("div", { class: "control-tables" });
  const log = el("section", {});
  root.append(state, tables, log);
  let control = true, timer = null, ended = false, begun = false;

  async function load() {
    const found = await api.get("/entities");
    if (ended) return;
    draw(found);
    // A change that no batch has taken yet will be: look again.
    clearTimeout(timer);
    if (found.changes.some((each) => each.taken === null && fresh(each))) timer = setTimeout(refresh, 1000);
  }

  async function refresh() {
    // What a person is typing stays.
    if (tables.contains(document.activeElement) && document.activeElement.matches("input")) return;
    try { await load(); } catch (error) { replace(state, problem(error)); }
  }

  const fresh = (change) => change.at_us !== null && Date.now() * 1000 - change.at_us < 600e6;

  async function put(entity, attribute, value, said) {
    replace(state, "Saving…");
    try {
      await api.send("PATCH", `/entities/${entity.id}`, { version: entity.version, attribute, value });
      await load();
      replace(state, said);
    } catch (error) {
      await load().catch(() => {});
      replace(state, problem(error));
    }
  }

  function draw(found) {
    if (begun) return tell(found);
    begun = true;
    const live = found.entities.flatMap((each) => each.attributes).filter((each) => each.mode === "live").length;
    replace(state, live
      ? "A change takes effect with the next batch, and a repeated batch has it again."
      : "No attribute can change while the query runs: no batch is planned yet, or the query has no source of UpStream.");
    tell(found);
  }

  function tell(found) {
    replace(tables, found.entities.map((entity) => table(entity)));
    replace(log, el("h2", {}, "Changes"), changes(found));
  }

  function table(entity) {
    return el("section", { class: "entity" },
      el("h2", {}, entity.id, entity.title ? el("span", { class: "quiet" }, ` ${entity.title}`) : null),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ["attribute", "value", "new value", "last change"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, entity.attributes.map((attribute) => row(entity, attribute))))));
  }

  function row(entity, attribute) {
    const change = attribute.changed;
    return el("tr", {},
      el("th", { scope: "row" }, attribute.name),
      el("td", {}, attribute.act ? "" : text(attribute.value), attribute.unit && attribute.value !== "none" ? el("span", { class: "quiet" }, ` ${attribute.unit}`) : null),
      el("td", {}, attribute.mode === "live" && control ? edit(entity, attribute)
        : el("span", { class: "quiet", title: `${MODES[attribute.mode]} ${attribute.why}` }, `${attribute.mode}: ${attribute.why}`)),
      el("td", {}, change === null ? "" : [said(change), undo(entity, attribute, change)]));
  }

  function edit(entity, attribute) {
    const name = `${entity.id}.${attribute.name}`;
    if (attribute.act) return el("button", { type: "button", onclick: () => put(entity, attribute.name, "now", `${name} is requested.`) }, "do it now");
    if (typeof attribute.value === "boolean") {
      const to = !attribute.value;
      return el("button", { type: "button", onclick: () => put(entity, attribute.name, to, `${name} is ${text(to)}.`) }, to ? "pause" : "resume");
    }
    const input = el("input", { "aria-label": `new value of ${name}`, placeholder: attribute.expected, title: attribute.expected, autocomplete: "off" });
    const send = (event) => {
      event.preventDefault();
      if (input.value.trim()) { input.blur(); put(entity, attribute.name, input.value.trim(), `${name} is ${input.value.trim()}.`); }
    };
    return el("form", { class: "inline", onsubmit: send }, input, el("button", { type: "submit" }, "set"));
  }

  function undo(entity, attribute, change) {
    if (attribute.act || !control || change.before === change.after) return null;
    const back = () => put(entity, attribute.name, change.before, `${entity.id}.${attribute.name} is ${text(change.before)} again.`);
    return el("button", { type: "button", class: "undo", title: `back to ${text(change.before)}`, onclick: back }, "undo");
  }

  function said(change) {
    const taken = change.taken === null ? (fresh(change) ? "not taken yet" : "") : `since batch ${change.taken.batch}, ${clock(change.taken.at_us)}`;
    return el("span", {}, `${text(change.before)} → ${text(change.after)} ${change.by ? `by ${change.by} ` : ""}`, el("span", { class: "quiet" }, taken));
  }

  function changes(found) {
    if (!found.changes.length) return el("p", { class: "quiet" }, "None yet.");
    return el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["when", "attribute", "before → after, by, taken"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, found.changes.map((each) => el("tr", {},
        el("td", {}, clock(each.at_us)), el("td", {}, `${each.entity}.${each.attribute}`), el("td", {}, said(each)))))));
  }

  control = (await api.get("/tables")).control;
  await load();
  return { onCommit: refresh, dispose() { ended = true; clearTimeout(timer); } };
}
