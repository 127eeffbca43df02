"""Rows as a page: one HTML file that needs no network, with charts, tables, and the rows themselves.

machines.py   files merged, machine by machine        figures.py   the data of a chart
limits.py, speed.py, costs.py                         the charts: choose rows, make series, add captions
tables.py     the columns of the tables               numbers.py   numbers for reading
document.py   what the page shows                      page.html    the page, a template
markup.py     text, data and scripts in HTML           page.css     screen, dark and light; phone; paper
page.js       draws the figures, sorts the tables
vendor/       Chart.js, written into each page
"""

from .document import page
from .machines import Machine, merged

__all__ = ["Machine", "merged", "page"]
