// What a reading does beyond its HTML, all of it optional: choices are kept over the whole site, j and k go from step to
// step, the map shows where the reader is and where he stopped, and a link's card appears on hover and on focus.
(function () {
  const kept = (key) => { try { return localStorage.getItem("annotator." + key); } catch (_) { return null; } };
  const keep = (key, value) => { try { localStorage.setItem("annotator." + key, value); } catch (_) { /* private window */ } };

  // The views Reference, PyTorch, JAX, Proof, and the switches for values and gradients
  const radios = () => document.querySelectorAll(".ann-views > input[type=radio]");
  const switches = (kind) => document.querySelectorAll(".ann-observed input." + kind);
  const named = (radio) => [...radio.classList].find((name) => name.startsWith("ann-"));
  const choose = (name) => radios().forEach((radio) => { if (named(radio) === name) radio.checked = true; });
  const flip = (kind, on) => switches(kind).forEach((box) => { box.checked = on; });
  document.addEventListener("change", (event) => {
    const input = event.target, step = input.closest(".ann-step, .ann-minimal");
    if (!step || !input.matches(".ann-views > input[type=radio], .ann-observed input")) return;
    const before = step.getBoundingClientRect().top;
    if (input.type === "radio") {
      choose(named(input));
      keep("view", named(input));
    } else {
      flip(input.className, input.checked);
      keep(input.className, input.checked ? "on" : "off");
    }
    window.scrollBy(0, step.getBoundingClientRect().top - before); // steps above changed their height
  });

  // A line that is linked to is seen, folded away or not
  const unfold = () => document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("details")?.setAttribute("open", "");
  addEventListener("hashchange", unfold);

  // Steps
  const heads = () => [...document.querySelectorAll(".ann-step h3[id]")];
  const title = (head) => head.firstChild.textContent;
  let current = null;
  function enter(head) {
    if (head === current) return;
    current = head;
    document.querySelectorAll(".ann-step").forEach((step) => step.classList.toggle("current", step.contains(head)));
    document.querySelectorAll(".ann-map li > a").forEach((link) => {
      if (link.hash === "#" + head.id) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current");
    });
    keep("at:" + location.pathname, head.id);
  }
  function look() { // the step whose code fills the window: the last one that began above its upper third
    const above = heads().filter((head) => head.getBoundingClientRect().top < innerHeight / 3);
    if (above.length) enter(above[above.length - 1]);
  }
  function go(by) {
    const all = heads(), at = all.indexOf(current), next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    if (!next) return;
    next.tabIndex = -1;
    next.focus({ preventScroll: true });
    next.scrollIntoView();
    history.replaceState(null, "", "#" + next.id);
    enter(next);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=text], input[type=search], input:not([type]), textarea, select, [contenteditable]")) return;
    if (event.key === "j") go(1);
    else if (event.key === "k") go(-1);
    else if (event.key === "Escape") hide();
  });

  // Cards: what the title of a link says, where a keyboard and a finger can see it too
  let card = null, shown = null;
  function show(link) {
    hide();
    card = card || Object.assign(document.body.appendChild(document.createElement("div")), { id: "ann-card-tip", className: "ann-tip" });
    card.setAttribute("role", "tooltip");
    card.textContent = link.title;
    shown = { link, title: link.title };
    link.removeAttribute("title"); // or the browser would show it a second time
    link.setAttribute("aria-describedby", card.id);
    const place = link.getBoundingClientRect();
    card.hidden = false;
    const width = card.offsetWidth, height = card.offsetHeight;
    const below = place.bottom + 6 + height < innerHeight;
    card.style.left = Math.max(8, Math.min(place.left, innerWidth - width - 8)) + scrollX + "px";
    card.style.top = (below ? place.bottom + 6 : place.top - height - 6) + scrollY + "px";
  }
  function hide() {
    if (!shown) return;
    shown.link.title = shown.title;
    shown.link.removeAttribute("aria-describedby");
    card.hidden = true;
    shown = null;
  }
  const linked = (event) => event.target.closest && event.target.closest(".ann-code a[title], a.ann-symbol[title]");
  document.addEventListener("mouseover", (event) => { const link = linked(event); if (link) show(link); });
  document.addEventListener("focusin", (event) => { const link = linked(event); if (link) show(link); });
  document.addEventListener("mouseout", (event) => { if (shown && event.target.closest && event.target.closest("a") === shown.link) hide(); });
  document.addEventListener("focusout", hide);

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // the theme's dialog has no name
    unfold();
    if (kept("view")) choose(kept("view"));
    if (kept("v")) flip("v", kept("v") === "on");
    if (kept("g")) flip("g", kept("g") === "on");
    const all = heads(), map = document.querySelector(".ann-map");
    if (!all.length || !map) return;
    const stopped = all.find((head) => head.id === kept("at:" + location.pathname));
    if (stopped && stopped !== all[0] && !location.hash) {
      const link = Object.assign(document.createElement("a"), { href: "#" + stopped.id, textContent: title(stopped) });
      const line = Object.assign(document.createElement("p"), { className: "ann-resume" });
      line.append("You stopped at: ", link);
      map.append(line);
    }
    const keys = Object.assign(document.createElement("p"), { className: "ann-keys" });
    keys.innerHTML = "<kbd>j</kbd> next step, <kbd>k</kbd> the one before";
    map.append(keys);
    look();
    let asked = false;
    addEventListener("scroll", () => {
      if (!asked) requestAnimationFrame(() => { asked = false; look(); });
      asked = true;
    }, { passive: true });
  });
})();
