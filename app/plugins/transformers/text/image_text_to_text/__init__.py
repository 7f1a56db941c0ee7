"""Run vision-language models with three graphs, as Optimum and transformers.js export them, without torch."""
