// CSV files for spreadsheets (RFC 4180).

export function csvOf(rows) {
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// Prefix an apostrophe where a spreadsheet would run the value as a formula.
function cell(value) {
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
