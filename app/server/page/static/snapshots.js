// The stream of metrics snapshots.

const SILENCE = 6000;
const FIRST_RETRY = 1000;
const LONGEST_RETRY = 8000;

// Call `onsnapshot` with every snapshot, and `onstate` with connecting, live, paused or lost. Return a function that
// stops.
export function follow(url, shown, state) {
  let source = null;
  let timer = 0;
  let pause = FIRST_RETRY;

  function close() {
    clearTimeout(timer);
    if (source !== null) source.close();
    source = null;
  }

  function lose() {
    close();
    state("lost");
    timer = setTimeout(open, pause);
    pause = Math.min(pause * 2, LONGEST_RETRY);
  }

  function open() {
    close();
    source = new EventSource(url);
    timer = setTimeout(lose, SILENCE);
    source.onerror = lose;
    source.onmessage = (event) => {
      clearTimeout(timer);
      timer = setTimeout(lose, SILENCE);
      pause = FIRST_RETRY;
      state("live");
      shown(JSON.parse(event.data));
    };
  }

  function turn() {
    if (document.hidden) {
      close();
      state("paused");
    } else {
      state("connecting");
      open();
    }
  }

  document.addEventListener("visibilitychange", turn);
  turn();
  return () => {
    document.removeEventListener("visibilitychange", turn);
    close();
  };
}
