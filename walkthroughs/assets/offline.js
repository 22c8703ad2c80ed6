// Search for a site opened as a folder of files: browsers start no worker from file://, so a hidden frame plays its part.
// On a server this does nothing. Must run before the theme's script.
(function () {
  if (location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.answer(data);
      inside.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(inside, one)));
      this.inside = this.load(inside, url).then(() => inside);
    }
    load(inside, url) {
      return new Promise((done) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = done;
        inside.document.body.append(script);
      });
    }
    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() {}
  };
})();
