// How far what is drawn over a picture lies from where it should be: for polygons { label, points } in pixels of the
// picture, walked along their edges, the farthest that the middle of a line of the label's colour is from its edge.
// The view has to be at one pixel to one. Names of shapes, which cover lines, are kept clear of.
async ({ polygons, width, height }) => {
  const { colourOf } = await import(new URL("page/drawing.js", location.href.split("#")[0]));
  const canvas = document.querySelector("canvas.over");
  const [left, top] = [(canvas.width - width) / 2, (canvas.height - height) / 2];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const strength = (x, y, colour) => {
    const at = 4 * (Math.floor(y) * canvas.width + Math.floor(x));
    return colour.every((each, channel) => Math.abs(each - data[at + channel]) < 30) ? Math.max(0, data[at + 3] - 150) : 0;
  };
  const plates = polygons.map(({ points }) => [Math.min(...points.map(([x]) => x)), Math.min(...points.map(([, y]) => y))]);
  const named = (x, y) => plates.some(([l, t]) => x > l - 6 && x < l + 170 && y > t - 26 && y < t + 26);
  let [looked, farthest] = [0, 0];
  const missing = [];
  for (const { label, points } of polygons) {
    const colour = colourOf(label).match(/\d+/g).map(Number);
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
        looked += 1;
        if (weights === 0) missing.push([label, Math.round(x), Math.round(y)]);
        else farthest = Math.max(farthest, Math.abs(sum / weights));
      }
    });
  }
  return { looked, missing, farthest };
};
