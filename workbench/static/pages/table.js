// What is in the table? Rows by a filter in SQL, one key, and files by bucket.

import { bytes, count, el, empty, grid, problem, replace, section } from "../dom.js";

export const title = "Table";
export const order = 8;

export async function render(root, api, params) {
  if (!api.table) {
    root.append(empty("No table yet"));
    return {};
  }
  const where = el("input", { id: "where", class: "mono", value: params.get("where") ?? "", placeholder: "speed > 10 AND route_id = 7", autocomplete: "off", spellcheck: false });
  const limit = el("select", { id: "limit" }, [20, 100, 500].map((each) => el("option", { value: each, selected: each === 100 }, `${each} rows`)));
  const key = el("input", { id: "key", class: "mono", autocomplete: "off", spellcheck: false });
  const rows = el("div");
  const about = el("p", { class: "muted" }, "\u00a0");
  const one = el("div");
  const files = el("div", { class: "stack" });
  const enter = (work) => (event) => event.key === "Enter" && work();
  where.onkeydown = enter(preview);
  key.onkeydown = enter(lookUp);
  limit.onchange = preview;
  root.append(
    el(
      "div",
      { class: "row wide" },
      el("div", { class: "field" }, el("label", { htmlFor: "where" }, "Filter in SQL"), where),
      limit,
      el("button", { class: "button primary", type: "button", onclick: preview }, "Show"),
    ),
    about,
    rows,
    section(
      "One key",
      el(
        "div",
        { class: "row wide" },
        el("div", { class: "field" }, el("label", { htmlFor: "key" }, "Key"), key),
        el("button", { class: "button", type: "button", onclick: lookUp }, "Look up"),
        el("button", { class: "button", type: "button", onclick: () => key.value && api.go("why", keyOf(key.value)) }, "Why?"),
      ),
      one,
    ),
    files,
  );

  function rowGrid(found, options) {
    const numbers = /^(int|uint|float|double|decimal)/;
    return grid(
      found.columns.map((each, at) => ({ label: each.name, title: each.type, num: numbers.test(each.type), text: (row) => (row[at] === null ? null : String(row[at])) })),
      found.rows,
      options,
    );
  }

  let names = [];
  function keyOf(text) {
    const parts = text.trim().split(/[\s,]+(?=\w+=)/).map((each) => each.split(/=(.*)/s));
    return names.length === 1 && !text.startsWith(`${names[0]}=`) ? { [names[0]]: text.trim() } : Object.fromEntries(parts.map(([name, value]) => [name, value]));
  }

  let turn = 0;
  async function preview() {
    const mine = ++turn;
    about.textContent = "Reading…";
    try {
      const found = await api.get("/table/rows", { where: where.value, limit: limit.value });
      if (mine !== turn) return;
      replace(rows, rowGrid(found, { caption: "Rows of the table", none: where.value ? "No row fits." : "The table has no rows." }));
      about.textContent =
        `${count(found.rows.length)} rows${found.rows_in_table !== null ? ` of ${count(found.rows_in_table)} in the table` : ""}, version ${count(found.version)}` +
        (found.complete ? "" : found.parts_read < found.parts ? `; ${found.parts_read} of ${found.parts} buckets were read` : "") +
        ".";
    } catch (error) {
      if (mine !== turn) return;
      about.textContent = "\u00a0";
      replace(rows, problem(error));
    }
  }

  async function lookUp() {
    if (!key.value.trim()) return;
    try {
      const found = await api.get("/table/keys", { key: key.value.trim().split(/[\s,]+(?=\w+=)/) });
      replace(
        one,
        el("p", { class: "muted" }, `Bucket ${found.bucket} of ${found.buckets}, version ${count(found.version)}.`),
        rowGrid(found, { caption: "Rows of the key", none: "The table has no row of this key. Ask why on the page Why." }),
      );
    } catch (error) {
      replace(one, problem(error));
    }
  }

  async function layout() {
    try {
      const [found, about] = await Promise.all([api.get("/table/files"), api.get("/table/keys")]);
      names = about.key.map((each) => each.name);
      key.placeholder = about.key.length === 1 ? `value of ${about.key[0].name}` : about.key.map((each) => `${each.name}=…`).join(" ");
      const total = (name) => found.buckets.reduce((sum, each) => sum + (each[name] ?? 0), 0);
      replace(
        files,
        section(
          "Files",
          el("p", { class: "muted" }, `${count(total("files"))} files in ${count(found.buckets.length)} buckets, ${bytes(total("bytes"))}; ${count(total("dead"))} rows are marked as dead by ${count(total("vectors"))} deletion vectors.`),
          grid(
            [
              { label: "bucket", num: true, text: (each) => String(each.bucket ?? "all") },
              { label: "files", num: true, text: (each) => count(each.files) },
              { label: "size", num: true, text: (each) => bytes(each.bytes) },
              { label: "rows", num: true, text: (each) => count(each.rows) },
              { label: "dead rows", num: true, text: (each) => count(each.dead) },
              { label: "vectors", num: true, text: (each) => count(each.vectors) },
            ],
            found.buckets,
            { caption: "Files by bucket" },
          ),
        ),
        section(
          "Readers",
          el("p", { class: "muted" }, `Reader version ${found.protocol.reader}, writer version ${found.protocol.writer}${found.protocol.features.length ? `, features ${found.protocol.features.join(", ")}` : ""}.`),
          grid(
            [
              { label: "reader", text: (each) => each.reader },
              { label: "", node: (each) => el("span", { class: `badge ${each.reads ? "good" : "bad"}` }, each.reads ? "reads it" : "refused") },
              { label: "why", text: (each) => each.why || "" },
            ],
            found.readers,
            { caption: "Readers of the table" },
          ),
        ),
      );
    } catch (error) {
      replace(files, problem(error));
    }
  }
  await Promise.all([preview(), layout()]);
  return { refresh: () => Promise.all([preview(), layout()]) };
}
