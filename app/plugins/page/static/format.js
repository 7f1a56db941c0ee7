// Number formats. Each function accepts null for "not known".

const NONE = "–";

function significant(value, digits) {
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

export function count(value) {
  return value === null ? NONE : value.toLocaleString("en", { maximumFractionDigits: 0 });
}

// A number of things, such as 1 image or 2 images.
export function counted(number, noun) {
  return `${count(number)} ${number === 1 ? noun : `${noun}s`}`;
}

export function milliseconds(value) {
  if (value === null) return NONE;
  if (value >= 10000) return `${significant(value / 1000, 3)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value < 100 ? value.toFixed(value < 10 ? 2 : 1) : count(value)} ms`;
}

export function percent(value) {
  if (value === null) return NONE;
  if (value > 0 && value < 0.1) return `${significant(value, 1)} %`;
  return `${value >= 100 ? count(value) : value.toFixed(1)} %`;
}

export function bytes(value) {
  if (value === null) return NONE;
  const [mib, gib] = [value / 2 ** 20, value / 2 ** 30];
  if (gib >= 1) return `${gib.toFixed(gib < 10 ? 2 : 1)} GiB`;
  if (mib < 0.1) return "< 0.1 MiB";
  return `${mib < 10 ? mib.toFixed(1) : count(mib)} MiB`;
}

// Isolate text that contains right-to-left characters or direction controls, so that it does not reorder its
// surroundings.
export function isolated(value) {
  return /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufefc]/.test(value)
    ? `\u2068${value}\u2069`
    : value;
}

export function localTime(milliseconds) {
  return new Date(milliseconds).toLocaleString("sv");
}

// A value of JSON as people write it.
export function valueText(value) {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
