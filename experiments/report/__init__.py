"""A report that people can read from one results file of `shunt bench run`.

shapes.py    what each line of a results file must look like
results.py   reads a results file: checks every line, says what is wrong with it, gathers lines by scenario
units.py     numbers and units as people write them
look.py      colours, markers and fonts; a drawing as SVG for the page and as PNG
labels.py    titles, labels at the ends of lines, keys: what makes a plot readable without colour
charts.py    the plots: a figure against its axis, in rows, over time or as a distribution
html.py      elements whose text is always escaped
page.py      the page around the plots
chapter.py   one scenario of the page
kept.py      runs that are kept: a small JSON file without single measurements
markdown.py  the page of the runs that are kept
runs.py      writes reports, and keeps runs below docs/results

`experiments/report/build` is the command. Everything on the page comes from the results file; nothing is measured here.
"""
