"""One module per format, each with ``render(report, view) -> str``; none of them needs torch."""
