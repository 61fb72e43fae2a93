"use strict";
// The rows are data: everything is written as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 50;
const state = {column: "number", falling: false, first: 0};
const byId = (name) => document.getElementById(name);

function element(name, content, options = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) made.setAttribute(key, value);
  for (const part of [content].flat()) if (part !== null && part !== undefined) made.append(part);
  return made;
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(3) : String(value);
}

function signed(value) {
  return data.signed && value > 0 ? "+" + shown(value) : shown(value);
}

function link(row) {
  const signs = Array.from(row.text);
  const start = signs.length > 90 ? signs.slice(0, 90).join("") + "…" : row.text;
  return element("a", start.trim() || "(empty)", {href: "#text-" + row.number, dir: "auto"});
}

function change(row) {
  if (row.word === null) return row.reason === null ? "–" : row.reason;
  return [row.word, " → ", row.replacement || "(deleted)"];
}

const columns = [
  ["number", "number", (row) => String(row.number)],
  ["text", "text", link],
  ...(data.labelled ? [["label", "label", (row) => shown(row.label)]] : []),
  ["prediction", "prediction", (row) => shown(row.prediction)],
  ["before", "probability", (row) => shown(row.before)],
  ["verdict", "verdict", (row) => badge(row.verdict)],
  ["word", "flips with", change],
  ["after", "then", (row) => shown(row.after)],
  ["top_word", "decides", (row) => shown(row.top_word)],
  ["typical", "typical", (row) => shown(row.typical)],
  ...(data.against === null ? [] : [["against_verdict", data.against, (row) => badge(row.against_verdict)]]),
];
const numeric = new Set(["number", "before", "after", "typical"]);
const kinds = {flips: ["fails", "✗"], safe: ["holds", "✓"], "not found": ["open", "?"]};

function badge(verdict) {
  const [kind, symbol] = kinds[verdict] || ["measured", "–"];
  return element("span", [element("span", symbol, {"aria-hidden": "true"}), " " + verdict], {class: "badge " + kind});
}

function chosen() {
  const query = byId("query").value.trim().toLowerCase();
  const verdict = byId("verdict").value, correct = byId("correct").value;
  const fields = ["text", "label", "prediction", "word", "replacement", "top_word", "reason"];
  const rows = data.texts.filter((row) =>
    (!verdict || row.verdict === verdict) && (!correct || String(row.correct) === correct) &&
    (!query || fields.some((name) => String(row[name] ?? "").toLowerCase().includes(query))));
  const sign = state.falling ? -1 : 1, name = state.column;
  const missing = (value) => value === null || value === undefined;
  return rows.sort((one, other) => {
    const first = one[name], second = other[name];
    if (missing(first) || missing(second)) return missing(first) - missing(second) || one.number - other.number;
    const order = typeof first === "number" ? first - second : String(first).localeCompare(String(second));
    return sign * order || one.number - other.number;
  });
}

function heading([name, title]) {
  const button = element("button", title, {type: "button"});
  button.addEventListener("click", () => {
    state.falling = state.column === name ? !state.falling : numeric.has(name) && name !== "number";
    state.column = name;
    state.first = 0;
    draw(name);
  });
  const sort = state.column !== name ? "none" : state.falling ? "descending" : "ascending";
  return element("th", button, {scope: "col", "aria-sort": sort, ...(numeric.has(name) ? {class: "number"} : {})});
}

function draw(focused) {
  const rows = chosen();
  const here = rows.slice(state.first, state.first + PAGE);
  const body = here.map((row) => element("tr", columns.map(([name, , cell]) =>
    element("td", cell(row), {dir: "auto", class: (numeric.has(name) ? "number " : "") + "column-" + name}))));
  byId("rows").replaceChildren(element("thead", element("tr", columns.map(heading))), element("tbody", body));
  const end = state.first + here.length;
  byId("count").textContent = rows.length ? `${state.first + 1} to ${end} of ${rows.length} texts` : "no text";
  byId("previous").hidden = state.first === 0;
  byId("next").hidden = end >= rows.length;
  if (focused) byId("rows").querySelectorAll("th button")[columns.findIndex(([name]) => name === focused)].focus();
}

function strip(row) {
  const signs = Array.from(row.text), made = element("p", null, {class: "heat", dir: "auto"});
  const top = Math.max(0, ...row.words.map((one) => one.typical ?? 0));
  let end = 0;
  for (const one of row.words) {
    if (one.start < end) continue;
    made.append(signs.slice(end, one.start).join(""));
    const share = top > 0 ? (one.typical ?? 0) / top : 0;
    const word = element("span", signs.slice(one.start, one.end).join(""));
    word.style.background = `rgb(230 97 1 / ${(0.65 * share).toFixed(3)})`;
    word.title = `typical ${shown(one.typical)}, masked ${signed(one.masked)}, worst ${signed(one.worst)}`;
    made.append(word);
    end = one.end;
  }
  made.append(signs.slice(end).join(""));
  return made;
}

function sentence(row) {
  if (row.reason !== null) return "Not measured: " + row.reason;
  const start = `Predicted ${shown(row.prediction)}, ${shown(row.before)}` + (row.label === null ? "" : `; label ${row.label}`) + ". ";
  if (row.word !== null) {
    return start + `“${row.word}” → “${row.replacement}” flips it to ${row.becomes}: ${shown(row.before)} → ${shown(row.after)}.`;
  }
  const tried = `${row.tried} of ${row.candidates} candidates were tried`;
  return start + (row.verdict === "safe" ? `Safe: ${tried}, and none flips it.` : `Not found: ${tried}, and none of these flips it.`);
}

function detail(row) {
  const counted = (row.flipping ?? null) !== null;
  const head = ["word", "masked", "typical", "worst", "with", "flips", ...(counted ? ["candidates that flip"] : [])].map((name) =>
    element("th", name, {scope: "col", ...(["masked", "typical", "worst", "candidates that flip"].includes(name) ? {class: "number"} : {})}));
  const lines = (row.words ?? []).map((one) => element("tr", [
    element("th", one.word, {scope: "row", dir: "auto"}),
    element("td", signed(one.masked), {class: "number"}),
    element("td", shown(one.typical) + (one.typical_se === null ? "" : " ± " + one.typical_se.toPrecision(2)), {class: "number"}),
    element("td", signed(one.worst), {class: "number"}),
    element("td", shown(one.replacement), {dir: "auto"}),
    element("td", one.flip ? "flips" : ""),
    ...(counted ? [element("td", `${one.flips} of ${one.tried}`, {class: "number"})] : []),
  ], one.leads ? {class: "best"} : {}));
  const steps = [["Previous text", row.number - 1], ["Next text", row.number + 1]]
    .filter(([, number]) => number >= 0 && number < data.texts.length)
    .map(([title, number]) => element("a", title, {href: "#text-" + number}));
  const against = row.against_verdict === undefined ? null :
    element("p", [data.against + ": ", shown(row.against_prediction), ", ", badge(row.against_verdict)]);
  return [
    element("p", [element("a", "All texts", {href: "#texts"}), ...steps], {class: "controls"}),
    element("h2", "Text " + row.number),
    row.words ? strip(row) : element("p", row.text, {class: "heat", dir: "auto"}),
    element("p", [badge(row.verdict), " ", sentence(row)]),
    against,
    lines.length ? element("table", [element("thead", element("tr", head)), element("tbody", lines)], {class: "effects"}) : null,
  ].filter((part) => part !== null);
}

function route() {
  const match = /^#text-(\d+)$/.exec(location.hash);
  const row = match === null ? undefined : data.texts[Number(match[1])];
  byId("overview").hidden = row !== undefined;
  byId("detail").hidden = row === undefined;
  byId("detail").replaceChildren(...(row === undefined ? [] : detail(row)));
  if (row !== undefined) {
    byId("detail").focus();
    scrollTo(0, 0);
  } else if (location.hash === "#texts") {
    byId("texts").scrollIntoView();
  }
}

for (const name of ["query", "verdict", "correct"]) {
  byId(name).addEventListener("input", () => { state.first = 0; draw(); });
}
byId("previous").addEventListener("click", () => { state.first = Math.max(0, state.first - PAGE); draw(); });
byId("next").addEventListener("click", () => { state.first += PAGE; draw(); });
document.querySelector("form.controls").addEventListener("submit", (event) => event.preventDefault());
document.querySelector("form.controls").hidden = false;
addEventListener("hashchange", route);
draw();
route();
