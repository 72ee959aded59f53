"""The plot of the benchmark of fairness: an SVG written by hand, one line an arm, milliseconds on a logarithmic scale."""
import html
import math

WIDTH, LEFT, RIGHT, TOP, ROW = 1000, 330, 40, 70, 26
COLOURS = {"p50": "#4c78a8", "p95": "#f2a33a", "p99": "#d1495b", "maximum": "#333333"}


def scale(value, low, high):
    share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def text(x, y, words, size=12, anchor="start", weight="normal", colour="#222222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
            f"{html.escape(words)}</text>")


def line(x1, y1, x2, y2, colour, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def bar(name, summary, y, low, high):
    """From the median to the maximum, with the percentiles marked on it."""
    parts = [text(LEFT - 12, y + 4, name, anchor="end")]
    if not summary.completed:
        end = scale(summary.maximum, low, high)
        return parts + [line(LEFT, y, end, y, "#d1495b", 2), text(LEFT + 8, y - 4, "starved: not one transaction", 11, colour="#d1495b", weight="bold")]
    parts.append(line(scale(summary.p50, low, high), y, scale(summary.maximum, low, high), y, "#b8b8b8", 5))
    for field, colour in COLOURS.items():
        parts.append(f'<circle cx="{scale(getattr(summary, field), low, high):.1f}" cy="{y:.1f}" r="5" fill="{colour}">'
                     f"<title>{field}: {getattr(summary, field):.2f} ms</title></circle>")
    return parts


def write(path, summaries, names, floods, orders, arms, note):
    shown = [(("alone",), names["alone"])]
    groups = [("", shown)]
    for flood in floods:
        groups.append((f"{flood} flood", [((arm, flood, order), f"{names[arm]}, {order.replace('_', ' ')}") for arm in arms for order in orders]))
    times = [value for key, summary in summaries.items() if key[0] != "idle" for value in (summary.p50, summary.maximum) if value]
    low, high = 10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times) * 1.0001))
    rows, y, parts = [], TOP, []
    for title, keys in groups:
        if title:
            y += ROW
            parts.append(text(LEFT - 12, y + 4, title, 13, "end", "bold"))
            y += ROW
        for key, name in keys:
            rows.append(bar(name, summaries[key], y, low, high))
            y += ROW
    grid, tick = [], low
    while tick <= high * 1.001:
        x = scale(tick, low, high)
        grid += [line(x, TOP - 20, x, y, "#e2e2e2"), text(x, y + 16, f"{tick:g} ms", 11, "middle")]
        tick *= 10
    legend = []
    for number, (field, colour) in enumerate(COLOURS.items()):
        x = LEFT + number * 110
        legend += [f'<circle cx="{x}" cy="{TOP - 32}" r="5" fill="{colour}"/>', text(x + 10, TOP - 28, field)]
    head = [text(20, 24, f"Time of a short read of the online tenant while a batch tenant floods the server ({note})", 15, weight="bold")]
    body = "\n".join(head + grid + legend + parts + [part for row in rows for part in row])
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 30}" viewBox="0 0 {WIDTH} {y + 30}" '
                   f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n')
