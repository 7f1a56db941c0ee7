// Dropped files and folders, and which files may be images.

const IMAGE_NAME = /\.(jpe?g|png|webp|bmp|gif|tiff?|avif)$/i;

// By type, or by name if the system gives no type.
export function isImage(file) {
  return file.type.startsWith("image/") || IMAGE_NAME.test(file.name);
}

// All dropped files, including those in folders.
export async function droppedFiles(transfer) {
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
