// Images to run a model on: dropped, pasted, selected, taken with the camera, or samples.

import { button } from "./controls.js";
import { make, say } from "./dom.js";
import { filesOf, loadSample, openCamera, readPicture, sleep, wake } from "./images.js";
import { session } from "./session.js";
import { text } from "./text.js";

const words = text.try;
const THUMB = 72;
const AT_ONCE = 2;
const FEW = 8;
// Thumbnails stay when large bitmaps are released and when the view closes.
const drawn = new WeakMap();

// `area` accepts drops; `onshow(image)` shows an image, `onnew(images)` receives added images.
export function gallery({ root, area, samples, onshow, onnew, onsample, fault }) {
  const input = make("input", {
    type: "file",
    accept: "image/*",
    multiple: "",
    class: "unseen",
    "aria-label": words.pick,
  });
  input.tabIndex = -1;
  const strip = make("div", { class: "strip", role: "group", "aria-label": words.pictures, hidden: "" });
  const dialog = make("dialog", { "aria-label": words.camera });
  const remove = button(words.remove, () => put([]));
  const sampleButtons = samples.map(({ name }) => {
    const choice = button(name, () => {
      const before = location.hash;
      onsample(name);
      // An unchanged address triggers no event, so load the sample here.
      if (location.hash === before) self.sample(name);
    });
    choice.setAttribute("aria-label", words.sample(name));
    return choice;
  });
  const sources = make(
    "div",
    { class: "sources" },
    make("span", { class: "hint drop" }, words.drop),
    button(words.pick, () => input.click()),
    input,
  );
  // Browsers allow the camera only over HTTPS or on a loopback address.
  if (navigator.mediaDevices?.getUserMedia) sources.append(button(words.camera, photograph));
  if (sampleButtons.length) sources.append(make("span", { class: "hint" }, words.samples), ...sampleButtons);
  sources.append(make("p", { class: "hint begin" }, words.begin));
  const element = make("div", { class: "gallery empty" }, sources, strip, dialog);
  const thumbs = new WeakMap();
  let shown = null;
  let adding = 0;

  // Read a few files at a time and keep only the first decoded: a hundred photos do not fit into memory.
  async function add(files) {
    if (!files.length) return;
    const mine = (adding += 1);
    fault.clear();
    const read = [];
    let next = 0;
    const worker = async () => {
      for (let place = next++; place < files.length && mine === adding; place = next++) {
        const picture = await readPicture(files[place], files[place].name || "image.png");
        await shrink(picture);
        if (place > 0) sleep(picture);
        read[place] = picture;
        if (files.length > FEW && mine === adding) fault.tell(words.reading(read.filter(Boolean).length, files.length));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (mine !== adding) {
      for (const image of read) if (image) sleep(image);
      return;
    }
    fault.clear();
    put(read);
  }

  async function shrink(picture) {
    if (drawn.has(picture)) return;
    const canvas = make("canvas", { width: THUMB, height: THUMB });
    drawn.set(picture, canvas);
    if (!picture.bitmap) return;
    const scale = Math.max(THUMB / picture.width, THUMB / picture.height);
    const [width, height] = [picture.width, picture.height].map((side) => Math.ceil(side * scale));
    // Draw a small bitmap: an invisible canvas may keep its source in memory.
    const size = { resizeWidth: width, resizeHeight: height, resizeQuality: "medium" };
    const small = await createImageBitmap(picture.bitmap, size).catch(() => null);
    if (small) canvas.getContext("2d").drawImage(small, (THUMB - width) / 2, (THUMB - height) / 2);
  }

  // Replace the images, and show the first.
  function put(pictures) {
    for (const image of session.pictures) if (image !== shown) sleep(image);
    session.pictures = pictures;
    element.classList.toggle("empty", !pictures.length);
    strip.hidden = pictures.length < 2;
    strip.replaceChildren(...pictures.map(thumb), remove);
    for (const image of pictures.slice(1)) sleep(image);
    onnew(pictures);
    choose(pictures[0] ?? null);
  }

  function thumb(picture, place, all) {
    const name = words.picture(picture.name, place + 1, all.length);
    shrink(picture);
    const thumbnail = make("button", { type: "button", "aria-label": name, title: picture.name }, drawn.get(picture));
    thumbnail.addEventListener("click", () => choose(picture));
    thumbs.set(picture, thumbnail);
    return thumbnail;
  }

  // Keep showing the previous image until the next one is decoded, then release it.
  async function choose(picture) {
    const before = shown;
    shown = picture;
    for (const image of session.pictures) thumbs.get(image)?.setAttribute("aria-pressed", image === picture);
    if (picture !== null) await wake(picture);
    if (shown === picture) onshow(picture);
    else if (picture !== null) sleep(picture);
    if (before !== null && before !== shown) sleep(before);
  }

  async function photograph() {
    fault.clear();
    let camera;
    try {
      camera = await openCamera();
    } catch (error) {
      fault.fail(words.noCamera(error.message));
      return;
    }
    const take = button(
      words.take,
      async () => {
        put([await camera.take()]);
        dialog.close();
      },
      "main",
    );
    dialog.replaceChildren(
      camera.element,
      make(
        "p",
        { class: "row" },
        take,
        button(words.cancel, () => dialog.close()),
      ),
    );
    dialog.onclose = camera.close;
    dialog.showModal();
    await camera.play();
  }

  input.addEventListener("change", () => {
    add([...input.files]);
    input.value = "";
  });
  const pasted = (event) => {
    const files = filesOf(event.clipboardData);
    if (!files.length) return;
    event.preventDefault();
    add(files);
  };
  const over = (event) => {
    event.preventDefault();
    area.classList.toggle("over", event.type === "dragover");
    if (event.type === "drop") add(filesOf(event.dataTransfer));
  };
  document.addEventListener("paste", pasted);
  for (const event of ["dragover", "dragleave", "drop"]) area.addEventListener(event, over);

  const self = {
    element,
    put,
    choose,
    shown: () => shown,
    async sample(name) {
      fault.clear();
      try {
        put([{ ...(await loadSample(root, name)), sample: name }]);
      } catch (error) {
        fault.fail(error.message);
      }
    },
    // Write the result on the thumbnail.
    mark(picture, words_) {
      const thumbnail = thumbs.get(picture);
      if (thumbnail === undefined) return;
      if (thumbnail.children.length < 2) thumbnail.append(make("span"));
      say(thumbnail.lastChild, words_);
    },
    close() {
      adding += 1;
      document.removeEventListener("paste", pasted);
      for (const event of ["dragover", "dragleave", "drop"]) area.removeEventListener(event, over);
      if (dialog.open) dialog.close();
    },
  };
  return self;
}
