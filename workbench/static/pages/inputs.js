// Who waits for whom? A lane for each input partition, those that hold the others back first.

import { calm, clock, count, duration, el, empty, replace } from "../dom.js";

export const title = "Inputs";
export const order = 3;

const SHOWN = 60;

export async function render(root, api) {
  const search = el("input", { type: "search", placeholder: "part of a name", oninput: () => draw() });
  const only = el("input", { type: "checkbox", onchange: () => draw() });
  root.append(
    el(
      "div",
      { class: "row" },
      el("div", { class: "field" }, el("label", { htmlFor: "lane-search" }, "Find an input partition"), search),
      el("label", { class: "row" }, only, "Only those that others wait for"),
    ),
  );
  search.id = "lane-search";
  const places = el("div", { class: "stack" });
  root.append(places);
  let found = { places: [] };

  function lane(each, most, micros) {
    const share = each.behind === null ? (each.ended ? 0 : 1) : most ? each.behind / most : 0;
    const far = each.ended ? "ended" : each.behind === null ? "no low-watermark" : each.behind === 0 ? "most advanced" : micros ? `${duration(each.behind_s)} behind` : `${count(each.behind)} behind`;
    const facts = [
      each.complete_up_to_us !== null ? `complete up to ${clock(each.complete_up_to_us, { full: true })}` : each.complete_up_to !== null ? `complete up to ${count(each.complete_up_to)}` : null,
      each.silent_s !== null && !each.ended ? `silent for ${duration(each.silent_s)}` : null,
      each.idle ? "idle: the clock advances it" : null,
      each.rows ? `${count(each.rows)} rows` : null,
      each.late ? `${count(each.late)} late` : null,
      each.suspects ? `${count(each.suspects)} suspect` : null,
      each.malformed ? `${count(each.malformed)} malformed` : null,
    ].filter(Boolean);
    return el(
      "div",
      { class: `lane${each.holds ? " holds" : ""}`, role: "listitem" },
      el("div", { class: "name", title: each.feed }, shortened(each.feed), each.holds ? el("span", { class: "badge warn" }, "the others wait for it") : null),
      el("div", { class: "track", "aria-hidden": "true" }, share > 0 ? el("span", { style: { width: `${Math.max(share * 100, 0.5)}%` } }) : null),
      el("div", { class: "far" }, far),
      el("div", { class: "more" }, facts.join(" · ")),
    );
  }

  function draw() {
    if (!found.places.length) {
      replace(places, empty("No input partitions are known", "A query that reads with UpStream journals them with its first batch. Batch writes have none."));
      return;
    }
    const wanted = search.value.toLowerCase();
    replace(
      places,
      found.places.map((place) => {
        const lanes = place.lanes.filter((each) => (!only.checked || each.holds) && each.feed.toLowerCase().includes(wanted));
        const holds = place.lanes.find((each) => each.holds);
        const words = holds
          ? `${place.partitions - 1} wait for ${shortened(holds.feed)}${holds.silent_s > 10 ? `, silent for ${duration(holds.silent_s)}` : ""}.`
          : place.partitions > 1
            ? "None holds the others back."
            : "";
        return el(
          "section",
          {},
          el("h2", {}, `${place.name}: ${count(place.partitions)} ${place.partitions === 1 ? "input partition" : "input partitions"}`),
          el("p", { class: "muted" }, words, place.held ? ` ${count(place.held)} rows are held here.` : ""),
          el("div", { class: "lanes", role: "list" }, lanes.slice(0, SHOWN).map((each) => lane(each, place.most_behind, place.micros))),
          lanes.length > SHOWN ? el("p", { class: "muted" }, `${count(lanes.length - SHOWN)} more: find them by name.`) : null,
        );
      }),
    );
  }

  async function load() {
    found = await api.get("/feeds");
    draw();
  }
  if (api.table) await load();
  else draw();
  const soon = calm(load, 1500);
  return { refresh: load, onCommit: soon, onVerdict: soon, dispose: () => soon.cancel() };
}

function shortened(feed) {
  const parts = feed.replace(/\/$/, "").split("/");
  return parts.slice(-2).join("/");
}
