// Search of symbols over all pins: a dialog on every page, filled from small static files as the reader types. The data and
// its order come from annotator/site/symbols.py; without JavaScript, and without a server, everything else is complete.
(function () {
  const root = new URL("..", document.currentScript.src);
  const PART = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+/g, ROWS = 40, NAMES = 14, EACH = 4;

  // Data
  const kept = new Map();
  function load(name) {
    if (!kept.has(name)) kept.set(name, fetch(new URL("symbols/" + name + ".json", root)).then((answer) => {
      if (!answer.ok) throw new Error(answer.status);
      return answer.json();
    }));
    return kept.get(name);
  }
  const fold = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  function beginnings(name) {
    const parts = (name.match(PART) || []).map((part) => part.toLowerCase());
    return parts.map((_, at) => parts.slice(at).join(""));
  }
  const has = (name, token) => beginnings(name).some((one) => one.startsWith(token));
  function stretch(firsts, key) { // the last stretch that begins at or before a key
    let low = 0, high = firsts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (firsts[middle] <= key) low = middle; else high = middle - 1;
    }
    return low;
  }
  async function named(contents, token) { // names that begin so, or a part of which does: [name, how unlikely it is]
    const crowded = contents.best.includes(token);
    let files = ["best/" + token];
    if (!crowded) {
      // names that begin alike may stand on the stretch before the one that begins with their beginning
      const from = Math.max(0, stretch(contents.parts, token) - (contents.parts[stretch(contents.parts, token)] === token ? 1 : 0));
      const to = stretch(contents.parts, token + "~");
      files = [];
      for (let at = from; at <= to; at++) files.push("parts/" + at);
    }
    const found = new Map();
    for (const shelf of await Promise.all(files.map(load)))
      shelf.forEach((names, unlikely) => names.forEach((name) => { if (has(name, token)) found.set(name, unlikely); }));
    return { names: [...found], crowded };
  }
  async function defined(contents, name) { // where a name is defined
    const { folders, names, more } = await load("names/" + stretch(contents.names, name));
    const rows = (names[name] || []).map(([folder, file, line, kind, within]) => ({ name, path: folders[folder] + "/" + file, line, kind, within }));
    return { rows, more: more[name] || 0 };
  }
  function address(contents, row) { // its line on the site, or upstream where the file has no page here
    if (contents.paged === true || contents.pages.has(row.path)) {
      const parts = row.path.split("/").map(encodeURIComponent).join("/");
      return new URL("source/" + parts + ".html#L" + row.line, root).href;
    }
    const cut = row.path.indexOf("/"), pin = row.path.slice(0, cut);
    let path = row.path.slice(cut + 1);
    const moved = contents.moved[pin] || {};
    const prefix = Object.keys(moved).filter((one) => path.startsWith(one)).sort((a, b) => b.length - a.length)[0];
    if (prefix !== undefined) path = moved[prefix] + path.slice(prefix.length);
    return contents.upstream[pin] + path.split("/").map(encodeURIComponent).join("/") + "#L" + row.line;
  }
  async function search(text) {
    const contents = await load("manifest");
    contents.pages = contents.pages || new Set(contents.paged === true ? [] : contents.paged);
    const dotted = /[.:]/.test(text);
    const tokens = text.split(/[\s.:]+/).map(fold).filter(Boolean);
    if (!tokens.length) return null;
    // Behind a dot or a colon stands the name; among words the longest has the fewest names
    const key = dotted ? tokens[tokens.length - 1] : [...tokens].sort((a, b) => b.length - a.length)[0];
    const others = tokens.filter((token) => token !== key);
    const found = await named(contents, key);
    const whole = dotted ? key : tokens.join(""), written = text.trim().split(/[\s.:]+/).pop();
    const owner = dotted && tokens.length > 1 ? tokens[tokens.length - 2] : "";
    const owned = (row) => Number(Boolean(owner) && fold(row.within.split(/[.:]+/).pop()) === owner);
    const order = ([name, unlikely]) => {
      const one = fold(name);
      return [name === written ? 0 : one === whole ? 1 : one.startsWith(whole) ? 2 : 3, others.filter((token) => !has(name, token)).length, unlikely, name.length];
    };
    const names = found.names.map((pair) => [order(pair), pair[0]]).sort(([a, x], [b, y]) => {
      for (let at = 0; at < a.length; at++) if (a[at] !== b[at]) return a[at] - b[at];
      return x < y ? -1 : 1;
    });
    const rows = [];
    let looked = 0, left = 0;
    for (; looked < names.length && rows.length < ROWS && looked < (others.length ? 4 : 1) * NAMES; looked++) {
      const [rank, name] = names[looked];
      const { rows: all, more } = await defined(contents, name);
      const fitting = all.filter((row) => others.every((token) => has(name, token) || has(row.within + " " + row.path, token)));
      const shown = fitting.sort((a, b) => owned(b) - owned(a)).slice(0, rank[0] > 1 ? EACH : ROWS / 2);
      rows.push(...shown);
      left += fitting.length - shown.length + (shown.length ? more : 0);
    }
    return { contents, rows: rows.slice(0, ROWS), left: left + names.length - looked, crowded: found.crowded };
  }

  // Dialog
  const make = (tag, values, ...children) => {
    const element = Object.assign(document.createElement(tag), values);
    element.append(...children);
    return element;
  };
  const input = make("input", { type: "search", id: "ann-find-input", autocomplete: "off", spellcheck: false, placeholder: "GRPOTrainer, clip_ratio, trainer.fit" });
  const status = make("p", { className: "status" }), list = make("ol");
  status.setAttribute("role", "status");
  const label = make("label", { htmlFor: input.id, textContent: "Find a symbol of the pins" });
  const dialog = make("dialog", { className: "ann-find" }, label, input, status, list);
  dialog.setAttribute("aria-label", "Find a symbol");
  const button = make("button", { type: "button", className: "ann-find-open", title: "Find a symbol (t)" }, "Symbols");
  button.setAttribute("aria-keyshortcuts", "t");
  function open() {
    if (!dialog.open) dialog.showModal();
    input.select();
    load("manifest").catch(() => {});
  }
  function entry(contents, row) {
    const name = make("b", { textContent: row.name });
    const place = make("span", { className: "place", textContent: row.path + ":" + row.line });
    const within = make("span", { className: "within", textContent: row.within ? row.kind + " in " + row.within : row.kind });
    return make("li", {}, make("a", { href: address(contents, row) }, name, " ", within, " ", place));
  }
  let asked = 0;
  async function look() {
    const mine = ++asked, text = input.value;
    let found = null, told = "";
    try {
      found = await search(text);
      if (found && !found.rows.length) told = "No symbol begins so.";
      else if (found) told = found.rows.length + " shown" + (found.left || found.crowded ? ", more by typing on" : "");
    } catch (_) {
      told = location.protocol === "file:" ? "Symbols are found where a server gives the pages: annotator serve" : "The list of symbols cannot be read.";
    }
    if (mine !== asked) return; // the reader has typed on
    list.replaceChildren(...(found ? found.rows.map((row) => entry(found.contents, row)) : []));
    status.textContent = told;
  }
  input.addEventListener("input", look);
  button.addEventListener("click", open);
  dialog.addEventListener("click", (event) => { if (event.target === dialog || event.target.closest("a")) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    event.stopPropagation(); // keys of the page mean nothing here
    const all = [input, ...list.querySelectorAll("a")], at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
    if (event.key === "Escape") {
      event.preventDefault(); // or a field with text would only be emptied
      dialog.close();
    } else if (to !== undefined) {
      event.preventDefault();
      all[Math.max(0, Math.min(to, all.length - 1))].focus();
    } else if (event.key === "Enter" && at === 0 && all.length > 1) {
      event.preventDefault();
      all[1].click();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "t" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]")) return;
    event.preventDefault();
    open();
  });
  function place() {
    const theme = document.querySelector(".md-header__inner"), search = document.querySelector(".md-header__inner > .md-search");
    if (theme) theme.insertBefore(button, search && search.previousElementSibling); else document.querySelector("header")?.prepend(button);
    document.body.append(dialog);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", place); else place();
})();
