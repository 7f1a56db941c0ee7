// The connection to the server, one state for all views: fetching, and noticing that the server is back.

const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 8000;

// The banner reports it, so views need not.
export class ConnectionLost extends Error {
  constructor() {
    super("The server cannot be reached");
    this.name = "ConnectionLost";
  }
}

let lost = false;
let [timer, delay] = [0, FIRST_RETRY_MS];
let onchange = () => {};

// Call `listener(lost)` when the connection is lost, and when it is back.
export function watchConnection(listener) {
  onchange = listener;
}

export const failure = (status) => `The server answered with status ${status}`;

// Fetch, or throw ConnectionLost or AbortError. Inferences of the page are trials, which recording keeps apart.
export async function request(url, options) {
  try {
    return await fetch(url, { ...options, headers: { ...options?.headers, "Charioteer-Trial": "true" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reportLost();
    throw new ConnectionLost();
  }
}

// The answer as JSON. Throw an error with the server's sentence, ConnectionLost or AbortError.
export async function requestJson(url, options) {
  const response = await request(url, options);
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (!response.ok) throw new Error(answer.error ?? failure(response.status));
  return answer;
}

function reportLost() {
  clearTimeout(timer);
  timer = setTimeout(checkConnection, delay);
  if (lost) return;
  lost = true;
  onchange(true);
}

// Call `load` now, and again every `ms` milliseconds while the page is visible: { load, close, closed }.
export function poll(load, ms) {
  let timer = 0;
  const polling = {
    closed: false,
    async load() {
      clearTimeout(timer);
      await load();
      clearTimeout(timer);
      if (!polling.closed) timer = setTimeout(loadIfVisible, ms);
    },
    close() {
      polling.closed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", loadIfVisible);
    },
  };
  function loadIfVisible() {
    clearTimeout(timer);
    if (!document.hidden) polling.load();
  }
  document.addEventListener("visibilitychange", loadIfVisible);
  polling.load();
  return polling;
}

// Ask the server for a small file: every answer shows that it is back.
export async function checkConnection() {
  clearTimeout(timer);
  const isBack = await fetch(new URL("icon.svg", import.meta.url), { cache: "no-store" }).then(
    () => true,
    () => false,
  );
  delay = isBack ? FIRST_RETRY_MS : Math.min(2 * delay, MAX_RETRY_MS);
  if (!isBack) reportLost();
  else if (lost) {
    lost = false;
    onchange(false);
  }
}
