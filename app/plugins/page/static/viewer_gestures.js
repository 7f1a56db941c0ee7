// The wheel, pointers and keys of a viewer: zooming, moving and pointing.

export const ZOOM_STEP = 1.25;
const KEY_PAN = 40;

// `point(x, y)` gets a place in the stage, `leave()` ends pointing.
export function addGestures(stage, { isEmpty, point, leave, zoomBy, zoomTo, shift, fit }) {
  const pointers = new Map();
  let pinchDistance = 0;

  function pointAt(event) {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  stage.addEventListener(
    "wheel",
    (event) => {
      if (isEmpty()) return;
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...pointAt(event));
    },
    { passive: false },
  );
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    pinchDistance = 0;
  });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) {
      point(...pointAt(event));
      return;
    }
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    if (pointers.size === 1) shift(event.clientX - before[0], event.clientY - before[1]);
    if (pointers.size !== 2) return;
    const [[ax, ay], [bx, by]] = pointers.values();
    const distance = Math.hypot(ax - bx, ay - by);
    const middle = { clientX: (ax + bx) / 2, clientY: (ay + by) / 2 };
    if (pinchDistance > 0) zoomBy(distance / pinchDistance, ...pointAt(middle));
    pinchDistance = distance;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    stage.addEventListener(end, (event) => {
      pointers.delete(event.pointerId);
      pinchDistance = 0;
      if (event.type === "pointerup" && event.pointerType === "touch") point(...pointAt(event));
    });
  }
  stage.addEventListener("pointerleave", () => leave());
  stage.addEventListener("dblclick", fit);
  stage.addEventListener("keydown", (event) => {
    const action = {
      "+": () => zoomBy(ZOOM_STEP),
      "=": () => zoomBy(ZOOM_STEP),
      "-": () => zoomBy(1 / ZOOM_STEP),
      0: fit,
      1: () => zoomTo(1),
      ArrowLeft: () => shift(KEY_PAN, 0),
      ArrowRight: () => shift(-KEY_PAN, 0),
      ArrowUp: () => shift(0, KEY_PAN),
      ArrowDown: () => shift(0, -KEY_PAN),
      Escape: () => leave(),
    }[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
}
