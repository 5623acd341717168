// What did not get into the table, and why? Late, malformed and conflicting rows, newest first.

import { count, el, empty, grid, replace } from "../dom.js";

export const title = "Dead letters";
export const order = 11;

const SIZE = 50;

export async function render(root, api, params) {
  if (!api.table) {
    root.append(empty("No table yet"));
    return {};
  }
  let offset = Number(params.get("offset") ?? 0);
  const reason = el("input", { id: "reason", type: "search", value: params.get("reason") ?? "", placeholder: "late, malformed, conflict", onkeydown: (event) => event.key === "Enter" && turn(0) });
  const about = el("p", { class: "muted" }, "\u00a0");
  const list = el("div");
  const newer = el("button", { class: "button", type: "button", onclick: () => turn(Math.max(offset - SIZE, 0)) }, "Newer");
  const older = el("button", { class: "button", type: "button", onclick: () => turn(offset + SIZE) }, "Older");
  root.append(
    el(
      "div",
      { class: "row" },
      el("div", { class: "field" }, el("label", { htmlFor: "reason" }, "Reason contains"), reason),
      el("button", { class: "button primary", type: "button", onclick: () => turn(0) }, "Show"),
      newer,
      older,
    ),
    about,
    list,
  );

  function turn(to) {
    offset = to;
    return load();
  }

  async function load() {
    const found = await api.get("/letters", { limit: SIZE, offset, reason: reason.value });
    newer.disabled = offset === 0;
    older.disabled = found.rows.length < SIZE;
    const at = Object.fromEntries(found.columns.map((each, number) => [each.name, number]));
    if (!found.total) {
      about.textContent = "\u00a0";
      replace(
        list,
        empty(
          "No dead letters",
          found.places.length ? "Every row was good." : "Rows that cannot be read, come late or conflict are kept in a table of dead letters, once there is one.",
        ),
      );
      return;
    }
    about.textContent = `${count(found.total)} dead letters in ${found.places.join(", ")}${found.complete ? "" : "; the time was over before all were searched"}.`;
    replace(
      list,
      grid(
        [
          { label: "batch", num: true, text: (row) => (row[at.batch] === null ? "–" : count(Number(row[at.batch]))) },
          { label: "reason", text: (row) => row[at.reason] },
          { label: "origin", text: (row) => row[at.origin] },
          { label: "row", node: (row) => el("code", {}, row[at.payload] ?? "") },
        ],
        found.rows,
        { caption: "Dead letters, newest first", none: "No dead letter with this reason." },
      ),
    );
  }
  await load();
  return { refresh: load };
}
