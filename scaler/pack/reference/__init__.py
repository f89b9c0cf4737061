"""The reference pages of ``docs/reference``, read out of the code: every key, metric, alert, command, route
and word.

``python -m scaler.pack.reference`` writes them (``make docs`` does, too); a test compares them with the code.
"""
