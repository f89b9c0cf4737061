"""The frame of the lab's report page: its style, light and dark, and where the parts go. Braces of CSS are doubled."""

from __future__ import annotations

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2330; --faint: #5d6675; --grid: #e4e7ec; --rule: #b3261e; --load: #7a8496;
  --series-1: #1763c6; --series-2: #c2570c; --series-3: #15803d; --series-4: #9333c0; --series-5: #a16207;
  --series-6: #0e7490;
  --state-idle: #cbd2dc; --state-low: #9cc9e8; --state-normal: #8fcf9f; --state-high: #f3c14b;
  --state-critical: #dd4b3e; --state-stalled: #7e3f98; --state-unknown: #6b7280;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --paper: #14181f; --ink: #e6e9ef; --faint: #9aa4b5; --grid: #2b323d; --rule: #ff8a80; --load: #8d98ab;
    --series-1: #6aa9ff; --series-2: #ff9d57; --series-3: #5fd38a; --series-4: #cf8bf3; --series-5: #e3c04f;
    --series-6: #4cc9e0;
    --state-idle: #3d4654; --state-low: #2f6690; --state-normal: #2f7d4a; --state-high: #b98a14;
    --state-critical: #c9382b; --state-stalled: #8e55aa; --state-unknown: #7b8494;
  }}
}}
body {{ background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1040px;
  margin: 0 auto; padding: 24px 20px 48px; }}
h1 {{ font-size: 22px; margin: 0 0 4px; }}
p {{ color: var(--faint); margin: 0 0 16px; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin-bottom: 12px; }}
th, td {{ text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--grid); white-space: nowrap; }}
th {{ color: var(--faint); font-weight: 500; font-size: 13px; }}
th:first-child, td:first-child {{ text-align: left; }}
.dot {{ display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }}
figure {{ margin: 14px 0 0; overflow-x: auto; }}
figcaption {{ font-size: 13px; color: var(--ink); }}
.key {{ color: var(--faint); margin-left: 14px; display: inline-block; white-space: nowrap; }}
.key i {{ display: inline-block; width: 20px; vertical-align: middle; margin-right: 6px; }}
.key i.swatch {{ width: 12px; height: 12px; border-radius: 2px; }}
.note {{ color: var(--faint); margin-left: 14px; font-style: italic; }}
svg {{ display: block; width: 100%; min-width: 640px; height: auto; }}
.grid {{ stroke: var(--grid); stroke-width: 1; }}
.tick {{ fill: var(--faint); font-size: 11px; }}
line.rule {{ stroke: var(--rule); stroke-width: 1.2; stroke-dasharray: 2 3; }}
text.rule {{ fill: var(--rule); font-size: 11px; paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }}
</style>
<h1>{heading}</h1>
<p>{lead}</p>
<div class="wide">{table}</div>
{panels}
</html>
"""
