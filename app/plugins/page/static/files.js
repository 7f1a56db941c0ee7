// Dropped and pasted files and folders, and which files may be images.

const IMAGE_NAME = /\.(jpe?g|png|webp|bmp|gif|tiff?|avif)$/i;

// By type, or by name if the system gives no type.
export function isImage(file) {
  return file.type.startsWith("image/") || IMAGE_NAME.test(file.name);
}

// Call `onfiles(files)` when files are dropped on `area`, or pasted, while `element` is shown. Return a function that
// stops.
export function receiveFiles(area, element, onfiles) {
  const drag = async (event) => {
    if (!element.isConnected) return;
    event.preventDefault();
    area.classList.toggle("drag-over", event.type === "dragover");
    if (event.type === "drop") onfiles(await droppedFiles(event.dataTransfer));
  };
  const paste = (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length || !element.isConnected) return;
    event.preventDefault();
    onfiles(files);
  };
  const types = ["dragover", "dragleave", "drop"];
  for (const type of types) area.addEventListener(type, drag);
  document.addEventListener("paste", paste);
  return () => {
    for (const type of types) area.removeEventListener(type, drag);
    document.removeEventListener("paste", paste);
  };
}

// All dropped files, including those in folders.
async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  return (await Promise.all(entries.map(readEntry))).flat();
}

async function readEntry(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const files = [];
  for (;;) {
    // A reader returns at most a hundred entries per call.
    const batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!batch.length) return files;
    files.push(...(await Promise.all(batch.map(readEntry))).flat());
  }
}
