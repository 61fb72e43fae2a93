// The page to explore texts. Texts reach the page through textContent alone, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { profile: null, selected: null, history: [], running: null };

function make(tag, text, kind) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

const number = (value, signed) =>
  value === null || value === undefined ? "–" : (signed && value > 0 ? "+" : "") + Number(value.toPrecision(3));

// Requests: one measurement of the page at a time; a new one ends the one before

function question(more) {
  return { model: $("model").value, text: $("text").value, on: $("on").value || null, ...more };
}

async function request(path, body, signal) {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  });
  if (!answer.ok) {
    const refusal = await answer.json().catch(() => ({ message: answer.statusText }));
    throw new Error(refusal.message);
  }
  return answer;
}

async function* events(path, body, signal) {
  const reader = (await request(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let ended = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    buffer += value;
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      const [, kind, data] = part.match(/^event: (\w+)\ndata: (.*)$/s);
      if (kind === "error") throw new Error(JSON.parse(data).message);
      if (kind === "end") ended = true;
      else yield JSON.parse(data);
    }
  }
  if (!ended) throw new Error("the server ended the measurement: is it still running?");
}

async function measuring(what, work) {
  if (state.running) state.running.abort();
  const running = new AbortController();
  state.running = running;
  $("error").textContent = "";
  $("status").textContent = `${what} …`;
  $("stop").hidden = false;
  try {
    await work(running.signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      $("error").textContent = error instanceof TypeError ? "the server does not answer: is it still running?" : error.message;
    }
    if (state.running === running) $("status").textContent = "";
  } finally {
    if (state.running === running) {
      state.running = null;
      $("stop").hidden = true;
    }
  }
}

// The words

async function measure() {
  remember();
  state.selected = null;
  $("word").hidden = true;
  await measuring("measuring", async (signal) => {
    const started = performance.now();
    for await (const profile of events("api/profile", question(), signal)) {
      state.profile = profile;
      showProfile();
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      $("status").textContent = `${profile.done ? "done" : "refining"}: ${profile.passes} passes, ${seconds} s`;
    }
  });
}

function showProfile() {
  const profile = state.profile;
  for (const id of ["result", "compare", "depth"]) $(id).hidden = false;
  $("save").disabled = !profile.done;
  fill($("on"), profile.outputs.map((name, place) => [place ? name : "", place ? name : `${name} (default)`]));
  fill($("layer"), Array.from({ length: profile.layers }, (_, layer) => [String(layer), String(layer)]));
  const predicted = profile.decision === null ? "" : `${profile.model} predicts ${profile.decision}`;
  const value = profile.before === null ? "" : `${predicted ? ", " : ""}${number(profile.before)}`;
  $("prediction").textContent = profile.lead || `${predicted}${value}`;
  showStrip();
  showNumbers();
}

function fill(select, options) {
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, label]) => {
    const option = make("option", label);
    option.value = value;
    return option;
  }));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

function effect(row) {
  return row[$("measure").value];
}

function colour(element, value, top) {
  const share = top > 0 ? Math.abs(value) / top : 0;
  const signed = state.profile.signed && $("measure").value !== "typical";
  const raised = signed && value > 0;
  element.style.background = `rgb(var(--${raised ? "up" : "down"}) / ${((raised ? 0.5 : 0.65) * share).toFixed(3)})`;
}

function showStrip() {
  const { pieces, words, signed, measured } = state.profile;
  const rows = new Map(words.map((row) => [row.position, row]));
  const top = Math.max(...words.map((row) => Math.abs(effect(row) ?? 0)));
  const focused = document.activeElement?.dataset?.position;
  const parts = [];
  for (const piece of pieces) {
    if (piece.apart && parts.length) parts.push(" ");
    const row = rows.get(piece.position);
    if (!row) {
      parts.push(make("span", piece.text, piece.special ? "special" : ""));
      continue;
    }
    const button = make("button", piece.text);
    button.type = "button";
    button.dataset.position = piece.position;
    button.setAttribute("aria-pressed", String(state.selected === piece.position));
    const note = [`masked ${number(row.masked, signed)}`];
    if (row.typical !== null) note.push(`typical ${number(row.typical)} ± ${number(row.typical_se)}`);
    if (row.worst !== null) note.push(`worst ${number(row.worst, signed)} (${row.replacement})${row.flip ? ", flips" : ""}`);
    button.title = note.join("\n");
    button.setAttribute("aria-label", `${piece.text}: ${note.join(", ")}`);
    if (effect(row) !== null) colour(button, effect(row), top);
    parts.push(button);
  }
  $("strip").replaceChildren(...parts);
  if (focused !== undefined) $("strip").querySelector(`[data-position="${focused}"]`)?.focus();
  const both = signed && $("measure").value !== "typical";
  const keys = [make("span", undefined, "key down"), both ? " lowers it, " : " moves it "];
  if (both) keys.push(make("span", undefined, "key up"), " raises it ");
  $("legend").replaceChildren(`Measured on ${measured}. `, ...keys, "(strongest colour: ", number(top), "). Click a word for its replacements.");
}

function showNumbers() {
  const names = ["position", "word", "masked", "typical", "typical_se", "worst", "replacement", "flip"];
  const head = make("tr");
  for (const name of names) head.append(make("th", name.replace("typical_se", "±")));
  const rows = state.profile.words.map((row) => {
    const line = make("tr");
    for (const name of names) {
      const value = row[name];
      const shown = typeof value === "number" && name !== "position" ? number(value, name !== "typical_se" && name !== "typical" && state.profile.signed)
        : value === true ? "yes" : value === false ? "no" : value ?? "–";
      line.append(make("td", String(shown), typeof value === "number" ? "number" : ""));
    }
    return line;
  });
  const [thead, tbody] = [make("thead"), make("tbody")];
  thead.append(head);
  tbody.append(...rows);
  $("numbers").replaceChildren(thead, tbody);
}

// Replacements of a word

async function choose(position) {
  state.selected = position;
  showStrip();
  const row = state.profile.words.find((one) => one.position === position);
  $("word").hidden = false;
  $("word-title").textContent = `Replacements of “${row.word}”`;
  $("word-note").textContent = "";
  $("swaps").replaceChildren();
  await measuring(`ranking replacements of “${row.word}”`, async (signal) => {
    const found = await (await request("api/swaps", question({ word: position }), signal)).json();
    const all = found.checked === found.candidates ? "all" : `${found.checked.toLocaleString("en")} of ${found.candidates.toLocaleString("en")}`;
    $("word-note").textContent = `Candidates: ${found.declared}; ${all} were tried.`;
    $("swaps").replaceChildren(...found.swaps.map((swap) => swapItem(swap, found)));
    $("status").textContent = `${found.swaps.length} replacements of “${row.word}”`;
  });
}

function swapItem(swap, found) {
  const item = make("li");
  const after = found.before !== null && found.signed ? ` (${number(found.before)} → ${number(found.before + swap.effect)})` : "";
  const what = make("span", swap.text, "measured");
  if (swap.flip) what.prepend(make("span", `flips to ${swap.becomes} `, "flip"));
  const apply = make("button", "Apply");
  apply.type = "button";
  apply.setAttribute("aria-label", `Apply ${swap.word}`);
  apply.addEventListener("click", () => applySwap(swap.text));
  const word = make("b", swap.word);
  word.dir = "auto";
  item.append(make("span", number(swap.effect, found.signed), "number"), word, what, apply);
  item.title = `${swap.word}${after}`;
  return item;
}

async function applySwap(text) {
  const before = $("text").value;
  state.history.push(before);
  $("undo").disabled = false;
  $("text").value = text;
  const was = state.profile;
  await measure();
  if (was && state.profile && state.profile.decision !== null) {
    const flipped = was.decision !== state.profile.decision ? " The prediction flips." : "";
    $("status").textContent = `before: ${was.decision} ${number(was.before)}; after: ${state.profile.decision} ${number(state.profile.before)}.${flipped}`;
  }
  $("other").value = before;
}

function undo() {
  if (!state.history.length) return;
  $("text").value = state.history.pop();
  $("undo").disabled = !state.history.length;
  measure();
}

// Two texts

async function compare() {
  remember();
  await measuring("comparing", async (signal) => {
    const head = $("head").value === "" ? null : Number($("head").value);
    const body = question({ other: $("other").value, layer: Number($("layer").value || 0), head });
    const found = await (await request("api/compare", body, signal)).json();
    const heads = Array.from({ length: found.first.heads }, (_, one) => [String(one), String(one)]);
    fill($("head"), [["", "mean of all"], ...heads]);
    $("sides").replaceChildren(side("First text", found.first), side("Second text", found.second));
    $("reading").textContent = "Rows attend to columns. Point at a cell, or move to it with Tab, to read it.";
    $("status").textContent = "compared";
  });
}

function side(title, found) {
  const box = make("div", undefined, "side");
  box.append(make("h3", title));
  const text = make("p", found.text);
  text.dir = "auto";
  box.append(text);
  if (found.decision !== null) box.append(make("p", `${found.decision} ${number(found.before)}`, "decision"));
  const top = Math.max(...found.scores.flat());
  const table = make("table");
  const head = make("tr");
  head.append(make("td"), ...found.words.map((word) => make("th", word)));
  const thead = make("thead");
  thead.append(head);
  const body = make("tbody");
  found.scores.forEach((row, from) => {
    const line = make("tr");
    line.append(make("th", found.words[from]));
    row.forEach((score, to) => {
      const cell = make("td");
      const note = `${found.words[from]} → ${found.words[to]}: ${number(score)}`;
      cell.title = note;
      cell.setAttribute("aria-label", note);
      if (from === to) cell.tabIndex = 0;
      cell.style.background = `rgb(var(--up) / ${(score / (top || 1)).toFixed(3)})`;
      for (const event of ["mouseenter", "focus"]) cell.addEventListener(event, () => { $("reading").textContent = note; });
      line.append(cell);
    });
    body.append(line);
  });
  table.append(thead, body);
  const matrix = make("div", undefined, "matrix");
  matrix.append(table);
  box.append(matrix);
  if (found.left_out) box.append(make("p", `${found.left_out} more words are not drawn`, "measured"));
  return box;
}

// Layers

async function byLayer() {
  await measuring("measuring the layers", async (signal) => {
    const lines = [];
    for await (const found of events("api/layers", question(), signal)) {
      lines.push(found);
      const top = Math.max(...lines.flatMap((line) => line.values));
      const head = make("tr");
      head.append(make("th", "layer"), ...found.words.map((word) => make("th", word)));
      const rows = lines.map((line) => {
        const row = make("tr");
        row.append(make("th", String(line.layer)));
        for (const value of line.values) {
          const cell = make("td", number(value));
          cell.style.background = `rgb(var(--down) / ${(0.65 * value / (top || 1)).toFixed(3)})`;
          row.append(cell);
        }
        return row;
      });
      const [table, thead, tbody] = [make("table"), make("thead"), make("tbody")];
      thead.append(head);
      tbody.append(...rows);
      table.append(thead, tbody);
      $("layers").replaceChildren(table);
      $("status").textContent = `layer ${found.layer + 1} of ${found.of}`;
    }
  });
}

// The link, and the page that needs no server

function remember() {
  const values = { text: $("text").value, model: $("model").value, on: $("on").value, other: $("other").value };
  const given = Object.entries(values).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(given)}`);
}

function restore() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of ["text", "other"]) if (given.has(name)) $(name).value = given.get(name);
  if (given.has("model") && [...$("model").options].some((option) => option.value === given.get("model"))) {
    $("model").value = given.get("model");
  }
  if (given.get("on")) {
    fill($("on"), [["", "default"], [given.get("on"), given.get("on")]]);
    $("on").value = given.get("on");
  }
  if (given.has("text")) measure();
}

async function save() {
  await measuring("writing the page", async (signal) => {
    const page = await (await request("api/page", question(), signal)).blob();
    const link = make("a");
    link.href = URL.createObjectURL(page);
    link.download = "wordsway.html";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    $("status").textContent = "saved as wordsway.html";
  });
}

$("question").addEventListener("submit", (event) => { event.preventDefault(); measure(); });
$("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) measure(); });
$("comparison").addEventListener("submit", (event) => { event.preventDefault(); compare(); });
$("measure").addEventListener("change", () => { if (state.profile) showStrip(); });
$("model").addEventListener("change", () => { fill($("on"), [["", "default"]]); });
$("stop").addEventListener("click", () => { state.running?.abort(); $("status").textContent = "stopped"; $("stop").hidden = true; });
$("undo").addEventListener("click", undo);
$("save").addEventListener("click", save);
$("by-layer").addEventListener("click", byLayer);
$("strip").addEventListener("click", (event) => {
  const position = event.target.dataset?.position;
  if (position !== undefined) choose(Number(position));
});
$("strip").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const words = [...$("strip").querySelectorAll("button")];
  words[words.indexOf(document.activeElement) + step]?.focus();
  event.preventDefault();
});
restore();
