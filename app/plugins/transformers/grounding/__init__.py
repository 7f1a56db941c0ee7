"""Read the places that vision-language models print in their answers: boxes, points and polygons."""
