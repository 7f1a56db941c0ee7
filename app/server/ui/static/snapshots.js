// The stream of metrics snapshots.

const MAX_SILENCE_MS = 6000;
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 8000;

// Call `onsnapshot` with every snapshot, and `onstate` with connecting, live, paused or lost. Return a function that
// stops.
export function subscribe(url, onsnapshot, onstate) {
  let source = null;
  let timer = 0;
  let retryDelay = FIRST_RETRY_MS;

  function close() {
    clearTimeout(timer);
    if (source !== null) source.close();
    source = null;
  }

  function reconnectLater() {
    close();
    onstate("lost");
    timer = setTimeout(open, retryDelay);
    retryDelay = Math.min(retryDelay * 2, MAX_RETRY_MS);
  }

  function open() {
    close();
    source = new EventSource(url);
    timer = setTimeout(reconnectLater, MAX_SILENCE_MS);
    source.onerror = reconnectLater;
    source.onmessage = (event) => {
      clearTimeout(timer);
      timer = setTimeout(reconnectLater, MAX_SILENCE_MS);
      retryDelay = FIRST_RETRY_MS;
      onstate("live");
      onsnapshot(JSON.parse(event.data));
    };
  }

  function updateVisibility() {
    if (document.hidden) {
      close();
      onstate("paused");
    } else {
      onstate("connecting");
      open();
    }
  }

  document.addEventListener("visibilitychange", updateVisibility);
  updateVisibility();
  return () => {
    document.removeEventListener("visibilitychange", updateVisibility);
    close();
  };
}
