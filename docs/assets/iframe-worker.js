// Browsers refuse workers to a page that is opened from disk. The search of the theme runs in one, so
// there an iframe takes its place: a global scope of its own that receives and posts messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      const script = document.createElement("script");
      script.src = url;
      frame.hidden = true;
      frame.srcdoc = script.outerHTML;
      this.scope = new Promise((resolve) => {
        frame.onload = () => resolve(frame.contentWindow);
      });
      this.scope.then((scope) => {
        scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.scope.then((scope) => scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
