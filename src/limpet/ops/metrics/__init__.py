"""Metrics: a table of all of them, samples that can be summed over processes, and the text format of Prometheus.

    families.py   the table: name, kind, labels, and how samples of several processes are merged
    samples.py    samples as plain data; their merging; clean label values
    text.py       the text that Prometheus reads
    reading.py    the samples of this process, read from its figures and live objects when an operator asks
    otlp.py       the same samples, sent to a collector

Nothing else here depends on a library of metrics: the text format is short, and its rules are tested with
Prometheus's own parser.
"""
