"""Rows as a page: one HTML file that asks the network for nothing, with charts, tables, and the rows themselves.

machines.py   files merged, machine by machine        figures.py   what a chart is
limits.py, speed.py, costs.py                         the charts: rows chosen, put into series, given captions
tables.py     rows and environments as tables         page.py      the page around them
markup.py     HTML that cannot be broken out of       numbers.py   figures for reading
page.js       draws the figures, sorts the tables     page.css     screen, dark and light; phone; paper
vendor/       Chart.js, written into each page
"""

from .machines import Machine, merged
from .page import page

__all__ = ["Machine", "merged", "page"]
