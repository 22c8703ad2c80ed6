// Remembers which view (Reference, PyTorch, JAX, Proof) the reader chose last. The views work without it.
(function () {
  const key = "annotator.view";
  const radios = () => document.querySelectorAll(".ann-views > input[type=radio]");
  const named = (radio) => [...radio.classList].find((name) => name.startsWith("ann-"));
  const choose = (name) => radios().forEach((radio) => { if (named(radio) === name) radio.checked = true; });
  const kept = () => { try { return localStorage.getItem(key); } catch (_) { return null; } };
  const keep = (name) => { try { localStorage.setItem(key, name); } catch (_) { /* private window */ } };
  document.addEventListener("change", (event) => {
    if (!event.target.matches(".ann-views > input[type=radio]")) return;
    const step = event.target.closest(".ann-step"), before = step.getBoundingClientRect().top;
    choose(named(event.target));
    keep(named(event.target));
    window.scrollBy(0, step.getBoundingClientRect().top - before); // steps above changed their height
  });
  document.addEventListener("DOMContentLoaded", () => { if (kept()) choose(kept()); });
})();
