"""Incidents as people read them: text for a terminal, HTML for a page or a file. Pure; needs rich only."""

from pipeline.report.page import render_html
from pipeline.report.terminal import Look, look_of
from pipeline.report.text import render_diagnosis, render_table, render_text

__all__ = ["Look", "look_of", "render_diagnosis", "render_html", "render_table", "render_text"]
