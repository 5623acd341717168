import { clock, count, duration, el, problem, replace, since } from "../dom.js";

export const title = "Why";
export const order = 5;

const STATES = { present: "good", unknown: "quiet", unseen: "quiet" };
const PARTS = ["part-one", "part-two", "part-three", "part-four", "part-five"];

export async function render(root, api, params) {
  const { key: columns } = await api.get("/why");
  const inputs = columns.map(({ name, type }) => el("input", { name, placeholder: type, value: params.get(name) ?? "", autocomplete: "off", required: true, spellcheck: false }));
  const answer = el("div", { class: "answer", "aria-live": "polite" });
  const newer = el("p", { class: "quiet" });
  const form = el("form", { class: "ask", onsubmit: ask },
    columns.map(({ name }, at) => el("label", {}, `${name} `, inputs[at])), el("button", {}, "Why?"));
  root.append(form, newer, answer);
  replace(answer, el("p", { class: "quiet" }, "Enter a key. The answer comes from the table, its log, its checkpoint, and its input. The query need not run."));
  let shown = null;

  async function ask(event) {
    event?.preventDefault();
    const query = new URLSearchParams({ table: api.table });
    inputs.forEach((input) => query.set(input.name, input.value));
    history.replaceState(null, "", `#/why?${query}`);
    newer.textContent = "Searching…";
    try {
      shown = await api.get("/why", { key: inputs.map((input) => `${input.name}=${input.value}`) });
      newer.textContent = "";
      replace(answer, sections(shown, api.now()));
    } catch (error) {
      newer.textContent = "";
      replace(answer, problem(error));
    }
  }

  if (inputs.every((input) => input.value)) await ask();
  else inputs[0]?.focus();
  return {
    onCommit(commit) {
      if (shown) newer.replaceChildren(`Batch ${commit.batch_id} has changed the table since this answer. `, el("button", { onclick: ask }, "Ask again"));
    },
  };
}

function sections(found, nowUs) {
  const verdict = el("span", { class: `verdict ${STATES[found.verdict] ?? "bad"}` }, found.verdict);
  return [
    el("p", { class: "sentence" }, verdict, " ", found.sentence),
    part("The row", found.row && values(found.row)),
    part("Its time from the event to the commit", found.way.length && [...way(found.way, nowUs), facts(found)]),
    part("Not in the table yet", found.coming.length && table(["state", "place", "batch", "arrival"],
      found.coming.map((each) => [each.state, each.text, each.batch, clock(each.arrival_us)]))),
    part("Dropped by the source", Object.keys(found.refused).length && table(["rows", "reason"],
      Object.entries(found.refused).map(([reason, rows]) => [count(rows), reason]))),
    part("Dead letters", found.letters.length && table(["reason", "origin", "payload"],
      found.letters.map((each) => [each.reason, each.origin, each.payload]))),
    part("Changes of the key, newest first", found.events.length && table(["version", "batch", "committed", "change", "row"],
      found.events.map((each) => [each.version, each.batch_id, clock(each.at_us), each.kind, each.row && JSON.stringify(each.row)]))),
    part("Steps with state", found.operators.length && table(["step", "rows", "oldest since", "complete up to"],
      found.operators.map((each) => [each.name, count(each.rows), clock(each.oldest_us), clock(each.complete_to)]))),
    part("Unread input", found.feeds.length && table(["input partition", "unread files", "unread bytes", "read up to offset"],
      found.feeds.map((each) => [each.feed, count(each.files), count(each.bytes), count(each.offset)]))),
    part("Unknown", found.unknown.length && el("ul", {}, found.unknown.map((each) => el("li", {}, each)))),
  ];
}

function part(name, content) {
  return content ? el("section", {}, el("h2", {}, name), content) : null;
}

function way(stretches, nowUs) {
  const whole = Math.max(stretches.reduce((sum, each) => sum + Math.max(each.seconds, 0), 0), 1e-6);
  const bar = el("div", { class: "way", role: "img", "aria-label": stretches.map((each) => `${each.name} ${duration(each.seconds)}`).join(", ") },
    stretches.map((each, at) => {
      const piece = el("span", { class: PARTS[at % PARTS.length], title: `${each.name}: ${duration(each.seconds)}` });
      piece.style.flexGrow = String(Math.max(each.seconds, 0) / whole);
      return piece;
    }));
  const sum = stretches.reduce((total, each) => total + each.seconds, 0);
  const rows = stretches.map((each, at) => [el("span", { class: `swatch ${PARTS[at % PARTS.length]}` }), each.name, duration(each.seconds), clock(each.to_us)]);
  return [bar, table(["", "stretch", "time", "until"], [...rows, ["", "total", duration(sum), ""], ["", "since the commit", since(stretches.at(-1).to_us, nowUs), ""]])];
}

function facts(found) {
  const said = [
    found.superseded !== null && ["superseded before the table", count(found.superseded)],
    found.staleness_s !== null && ["staleness at the commit", duration(found.staleness_s)],
    found.late !== null && ["late", found.late ? "yes: below the low-watermark of its input partition" : "no"],
  ];
  return el("dl", { class: "figures" }, said.filter(Boolean).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function values(row) {
  return table(Object.keys(row), [Object.values(row).map((each) => each === null ? "null" : typeof each === "object" ? JSON.stringify(each) : String(each))]);
}

function table(heads, rows) {
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, heads.map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((each) => el("td", {}, each ?? "–")))))));
}
