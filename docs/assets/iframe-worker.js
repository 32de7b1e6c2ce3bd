// Pages that are opened from the disk may not start workers, and the search is one. Here it runs in
// a hidden frame instead, which may.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow, script = inside.document.createElement("script");
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      script.addEventListener("load", () => {
        this.inside = inside;
        this.waiting.forEach(data => this.postMessage(data));
      });
      script.src = url;
      inside.document.head.append(script);
    }

    postMessage(data) {
      if (!this.inside) this.waiting.push(data);
      else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
}
