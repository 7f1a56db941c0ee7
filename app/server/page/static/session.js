// What the views share for as long as the page is open: the model, what it is shown, and how it is asked.

export const session = {
  model: "",
  pictures: [],
  question: "",
  text: "",
  tensors: "",
  parameters: {},
};
