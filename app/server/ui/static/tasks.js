// What each task type takes and returns: `TaskType` of the server (tasks/task.py), which it writes into the page.

const TASKS = JSON.parse(document.documentElement.dataset.tasks);
// The type of a model that is not loaded, or of a recording that another server made.
const UNKNOWN = { takes: "tensor", returns: "tensors", geometry: null };

// { takes, returns, geometry } of a task type.
export function taskOf(name) {
  return TASKS[name] ?? UNKNOWN;
}
