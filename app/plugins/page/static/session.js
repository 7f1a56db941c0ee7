// State that the views share while the page is open: the model, its inputs and its parameters.

export const session = {
  model: "",
  images: [],
  question: "",
  text: "",
  tensors: "",
  parameters: {},
};
