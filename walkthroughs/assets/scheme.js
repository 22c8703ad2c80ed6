// Source pages take over the light or dark choice made on the readings. Without it they follow the system.
(function () {
  try {
    const root = new URL("..", document.currentScript.src).pathname;
    const kept = JSON.parse(localStorage.getItem(root + ".__palette"));
    if (kept && kept.color && kept.color.scheme) document.documentElement.dataset.mdColorScheme = kept.color.scheme;
  } catch (_) { /* no storage: follow the system */ }
})();
