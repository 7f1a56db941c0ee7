// Files that were dropped, and which of them may be pictures.

const PICTURE = /\.(jpe?g|png|webp|bmp|gif|tiff?|avif)$/i;

// By its type, or by its name where the system gives none.
export function mayBePicture(file) {
  return file.type.startsWith("image/") || PICTURE.test(file.name);
}

// Everything that was dropped, folders with all that is in them.
export async function filesIn(transfer) {
  const entries = [...transfer.items].map((each) => each.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  return (await Promise.all(entries.map(walk))).flat();
}

async function walk(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    // A reader gives its entries a hundred at a time.
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    found.push(...(await Promise.all(some.map(walk))).flat());
  }
}
