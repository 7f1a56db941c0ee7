// The stream of metrics snapshots.

import { reportLost } from "./connection.js";

const MAX_SILENCE_MS = 6000;

// Call `onsnapshot` with every snapshot, and `onstate` with connecting, live or paused. Return a function that stops.
// After a lost connection the view subscribes again.
export function subscribe(url, onsnapshot, onstate) {
  let source = null;
  let timer = 0;

  function close() {
    clearTimeout(timer);
    if (source !== null) source.close();
    source = null;
  }

  function fail() {
    close();
    onstate("connecting");
    reportLost();
  }

  function open() {
    close();
    onstate("connecting");
    source = new EventSource(url);
    timer = setTimeout(fail, MAX_SILENCE_MS);
    source.onerror = fail;
    source.onmessage = (event) => {
      clearTimeout(timer);
      timer = setTimeout(fail, MAX_SILENCE_MS);
      onstate("live");
      onsnapshot(JSON.parse(event.data));
    };
  }

  function updateVisibility() {
    if (!document.hidden) {
      open();
      return;
    }
    close();
    onstate("paused");
  }

  document.addEventListener("visibilitychange", updateVisibility);
  updateVisibility();
  return () => {
    document.removeEventListener("visibilitychange", updateVisibility);
    close();
  };
}
