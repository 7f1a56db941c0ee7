"""Whether what a model sees and says has changed: baselines, tests, a monitor."""
