// The protocols of requests, each in a module of its plugin.
//
// A module has the `title` and the `order` of its protocol, and `write(exchange)`, which builds the request
// (request_parts.js). It may have `python(written, exchange)`, which writes it with an SDK (snippets.js), and
// `fits(model)`. For a protocol on another port, which the page does not reach, it has `port`, its name.

const files = Object.entries(JSON.parse(document.documentElement.dataset.requests));
const modules = await Promise.all(files.map(async ([id, file]) => [id, await import(`./${file}`)]));

// The modules by the id of their protocol.
export const PROTOCOLS = Object.fromEntries(modules.sort(([, one], [, other]) => one.order - other.order));
