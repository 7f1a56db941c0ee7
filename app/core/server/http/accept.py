"""Read the header `Accept`."""


def wants_html(accept: str) -> bool:
    """Return whether `Accept` prefers HTML to JSON, as browsers do and health checks do not."""
    qualities = dict(_quality(part) for part in accept.lower().split(","))
    return qualities.get("text/html", 0) > qualities.get("application/json", 0)


def _quality(text: str) -> tuple[str, float]:
    media_type, *parameters = (part.strip() for part in text.split(";"))
    quality = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return media_type, float(quality)
    except ValueError:
        return media_type, 0
