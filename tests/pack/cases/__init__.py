"""Tests of the rules, written in Python and run by promtool: for each alert when it fires, and all it must not mind."""
