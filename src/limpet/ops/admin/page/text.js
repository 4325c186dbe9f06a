// How values become texts. Names come from clients: they may be long, and they may turn the direction of writing.

const LONGEST = 160;

/** Return a name that cannot fill the page. */
export function short(text, longest = LONGEST) {
  const whole = String(text ?? "");
  return whole.length > longest ? `${whole.slice(0, longest)}…` : whole;
}

/** Return a name for the middle of a sentence: it cannot turn the direction of the words after it. */
export const quoted = (text) => `\u2068${short(text)}\u2069`;

export function seconds(value) {
  if (value == null) return "";
  if (value < 0.0995) return `${+(value * 1000).toPrecision(2)} ms`;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  return clock(value);
}

/** Return whole seconds, for a time that counts up or down. */
export function clock(value) {
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  return value < 1024 ** 2 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 1024 ** 2).toFixed(1)} MiB`;
}

export const percent = (share) => (share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(share * 100)} %`);

export const rate = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)}/s`;

export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export const time = (moment) => new Date(moment).toLocaleTimeString("en-GB");
