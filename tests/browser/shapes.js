// Measure how far drawn shapes lie from where they should be: walk along the edges of polygons { label, points } in pixels
// of the image, and return the maximum distance of an edge from the middle of a line in the label's colour.
// The zoom must be one to one. Names of shapes are skipped, because they cover lines.
async ({ polygons, width, height }) => {
  const { colourOf } = await import(new URL("page/palette.js", location.href.split("#")[0]));
  const canvas = document.querySelector("canvas.shapes");
  const [left, top] = [(canvas.width - width) / 2, (canvas.height - height) / 2];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const strength = (x, y, colour) => {
    const at = 4 * (Math.floor(y) * canvas.width + Math.floor(x));
    return colour.every((value, channel) => Math.abs(value - data[at + channel]) < 30) ? Math.max(0, data[at + 3] - 150) : 0;
  };
  const plates = polygons.map(({ points }) => [Math.min(...points.map(([x]) => x)), Math.min(...points.map(([, y]) => y))]);
  const named = (x, y) => plates.some(([l, t]) => x > l - 6 && x < l + 170 && y > t - 26 && y < t + 26);
  let [checked, farthest] = [0, 0];
  const missing = [];
  for (const { label, points } of polygons) {
    const colour = colourOf(label).match(/[0-9a-f]{2}/g).map((channel) => Number.parseInt(channel, 16));
    points.forEach(([ax, ay], index) => {
      const [bx, by] = points[(index + 1) % points.length];
      const length = Math.hypot(bx - ax, by - ay);
      if (length < 3) return;
      const [alongX, alongY] = [(bx - ax) / length, (by - ay) / length];
      for (let at = 1.5; at <= length - 1.5; at += 3) {
        const [x, y] = [ax + alongX * at, ay + alongY * at];
        const beyond = x < 5 || y < 5 || x > width - 5 || y > height - 5;
        if (beyond || named(x, y)) continue;
        let [sum, weights] = [0, 0];
        for (let off = -3; off <= 3; off += 0.25) {
          const weight = strength(left + x - alongY * off, top + y + alongX * off, colour);
          sum += weight * off;
          weights += weight;
        }
        checked += 1;
        if (weights === 0) missing.push([label, Math.round(x), Math.round(y)]);
        else farthest = Math.max(farthest, Math.abs(sum / weights));
      }
    });
  }
  return { checked, missing, farthest };
};
