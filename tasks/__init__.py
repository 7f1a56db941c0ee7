"""The language of vision inference: task types, the neutral exchange, images, boxes, contours."""
