"""Protocol-neutral inference: task types, requests and responses, images, boxes, contours and texts."""
