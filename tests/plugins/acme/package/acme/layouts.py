"""The layouts of this plugin."""

from acme import counting, detector

LAYOUTS = (*detector.LAYOUTS, *counting.LAYOUTS)
