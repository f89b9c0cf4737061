"""What would the scaler have done? A Prometheus' past replayed through the code that decides in production.

Read, measure, play, judge:

- :mod:`.options`, :mod:`.carry_out`: what was typed, and the study before a person's eyes
- :mod:`.study`: one backtest from the first question to what it found
- :mod:`.asking`, :mod:`.binding`, :mod:`.questions`, :mod:`.matrix`, :mod:`.reading`: raw samples, part by part
- :mod:`.columns`, :mod:`.replay`, :mod:`.past`: at each tick the observation and the signals of production
- :mod:`.crowd`, :mod:`.counterfactual`: the same signals with the scaler's replicas in place of those that ran
- :mod:`.play`: decisions, KEDA, the HPA, cold starts
- :mod:`.findings`, :mod:`.limits`, :mod:`.summary`, :mod:`.show`, :mod:`.page`, :mod:`.export`: what it comes to, what
  it cannot know, and how that is told
"""
