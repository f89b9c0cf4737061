"""The rule pack: recording and alert rules as plain data (``rules/*.py``), written out in the forms people load.

``python -m scaler.pack`` writes the committed files of ``rules/``; ``loadtide rules`` prints the same for one's own
labels, namespace and sources.
"""
