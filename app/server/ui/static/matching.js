// Matching the results of two models.

import { overlap } from "./drawing.js";

const MIN_IOU = 0.5;

// Match two lists by label, highest overlap first. Return [left, right, iou], with null for a missing partner.
export function matchResults(ones, others, byOverlap) {
  const candidates = [];
  for (const one of ones) {
    for (const other of others) {
      if (one.label !== other.label) continue;
      const iou = byOverlap ? overlap(one, other) : 1;
      if (iou >= MIN_IOU) candidates.push([one, other, iou]);
    }
  }
  candidates.sort((left, right) => right[2] - left[2]);
  const matched = new Set();
  const both = candidates.filter(([one, other]) => {
    if (matched.has(one) || matched.has(other)) return false;
    matched.add(one).add(other);
    return true;
  });
  const unmatched = (all) => all.filter((shape) => !matched.has(shape));
  const rows = [
    ...both,
    ...unmatched(ones).map((shape) => [shape, null, null]),
    ...unmatched(others).map((shape) => [null, shape, null]),
  ];
  const best = ([one, other]) => Math.max(one?.score ?? 0, other?.score ?? 0);
  return rows.sort((left, right) => best(right) - best(left));
}
