// Dropped files and folders, and which files may be images.

const PICTURE = /\.(jpe?g|png|webp|bmp|gif|tiff?|avif)$/i;

// By type, or by name if the system gives no type.
export function mayBePicture(file) {
  return file.type.startsWith("image/") || PICTURE.test(file.name);
}

// All dropped files, including those in folders.
export async function filesIn(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  return (await Promise.all(entries.map(walk))).flat();
}

async function walk(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    // A reader returns at most a hundred entries per call.
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    found.push(...(await Promise.all(some.map(walk))).flat());
  }
}
