// The search of the site runs in a worker. Browsers refuse workers of pages that were opened as files, so there the script of the
// worker runs in a hidden frame. A page of a server uses real workers.
if (location.protocol === 'file:') {
  window.Worker = class {
    onmessage = null;
    onerror = null;

    constructor(url) {
      this.frame = document.createElement('iframe');
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (sent) => {
        const data = structuredClone(sent);
        setTimeout(() => this.onmessage?.(new MessageEvent('message', { data })));
      };
      this.ready = new Promise((resolve) => {
        const script = inner.document.createElement('script');
        script.src = url;
        script.onload = () => resolve(inner);
        script.onerror = (event) => this.onerror?.(event);
        inner.document.body.append(script);
      });
    }

    postMessage(sent) {
      // A worker gets a copy: neither side sees what the other changes.
      const data = structuredClone(sent);
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent('message', { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
