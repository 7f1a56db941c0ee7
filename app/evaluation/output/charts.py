"""Render charts as SVG, for a page without scripts."""

from collections.abc import Sequence

from markupsafe import Markup, escape

from app.evaluation.report import Chart, Line

__all__ = ("svg_chart",)

_WIDTH, _HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40
_COLOURS = ("#2a78d6", "#d9602b", "#2a9d5c", "#b43fb0", "#c8a200", "#11a3a8", "#8a5bd6", "#d63f62", "#7a8794")
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def svg_chart(chart: Chart) -> Markup:
    """Render the lines of `chart` over 0..1, with axes and a legend below."""
    elements = [_axes(chart)]
    # Draw the first line last, because it is the most important.
    drawn = [_line(line, _COLOURS[index % len(_COLOURS)]) for index, line in enumerate(chart.lines)]
    elements += reversed(drawn)
    label = escape(f"{chart.title}: {', '.join(line.name for line in chart.lines)}")
    body = Markup("").join(elements)
    drawing = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, label, body
    )
    return drawing + _legend(chart.lines)


def _axes(chart: Chart) -> Markup:
    elements: list[Markup] = []
    for tick in _TICKS:
        x, y = _x(tick), _y(tick)
        elements.append(
            Markup('<path class="grid" d="M{} {}H{}M{} {}V{}"/>').format(
                _LEFT, y, _WIDTH - _RIGHT, x, _TOP, _HEIGHT - _BOTTOM
            )
        )
        elements.append(Markup('<text x="{}" y="{}" text-anchor="end">{:g}</text>').format(_LEFT - 6, y + 4, tick))
        elements.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{:g}</text>').format(x, _HEIGHT - _BOTTOM + 16, tick)
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    elements.append(Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, _HEIGHT - 6, chart.x))
    elements.append(
        Markup('<text transform="translate(12 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
            (_TOP + _HEIGHT - _BOTTOM) / 2, chart.y
        )
    )
    return Markup("").join(elements)


def _line(line: Line, colour: str) -> Markup:
    points = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True))
    return Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2"><title>{}</title></polyline>').format(
        points, colour, line.name
    )


def _legend(lines: Sequence[Line]) -> Markup:
    entries = [
        Markup('<li><span class="key" style="background:{}"></span>{}</li>').format(
            _COLOURS[index % len(_COLOURS)], line.name
        )
        for index, line in enumerate(lines)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))


def _x(value: float) -> float:
    return round(_LEFT + value * (_WIDTH - _LEFT - _RIGHT), 2)


def _y(value: float) -> float:
    return round(_TOP + (1 - value) * (_HEIGHT - _TOP - _BOTTOM), 2)
