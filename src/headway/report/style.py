"""The look of a page, in light and dark."""

#: names of colours, each with a value for light and one for dark
COLOURS = """
:root{--bg:#fbfbfa;--card:#fff;--fg:#1c2024;--dim:#5d6670;--rule:#dfe3e6;--warn:#8a4b00;
--warn-bg:#fff3dc;--c0:#2866c7;--c1:#c2570c;--c2:#0b8a66;--c3:#a8327f;--c4:#6d5bd0;--c5:#63717c}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--fg:#e8eaec;--dim:#9aa4ad;
--rule:#30363c;--warn:#ffce85;--warn-bg:#3a2b10;--c0:#79aef5;--c1:#f39a55;--c2:#4fcfa6;
--c3:#e887c5;--c4:#ab9df7;--c5:#a4b1bb}}
"""

#: of what charts draw; the classes c0 to c5 are the colours of their lines
CHARTS = """
.grid{stroke:var(--rule);stroke-width:1;fill:none}
.tick{fill:var(--dim);font-size:12px}
.tick.end{text-anchor:end}
.tick.mid{text-anchor:middle}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.dots{fill:none;stroke:currentColor;stroke-width:4;stroke-linecap:round;opacity:.45}
.bar{fill:currentColor}
.target{fill:none;stroke:currentColor;stroke-width:1.5;stroke-dasharray:5 4}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}
.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}
"""

_PAGE = """
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:22px;line-height:1.25;margin:0 0 16px}
h2{font-size:17px;margin:32px 0 8px}
h3{font-size:15px;margin:20px 0 6px}
.warning{background:var(--warn-bg);color:var(--warn);padding:8px 12px;
border-radius:6px;margin:8px 0}
.cards{display:flex;flex-wrap:wrap;gap:12px}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 16px}
.card b{display:block;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}
.card span{color:var(--dim);font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;margin:4px 0 12px}
th{color:var(--dim);font-weight:500;border-bottom:1px solid var(--rule)}
th,td{padding:4px 14px 4px 0;text-align:right;white-space:nowrap}
th:first-child,td:first-child,.facts td{text-align:left}
.facts thead{display:none}
.facts td{white-space:normal;overflow-wrap:anywhere}
.facts td:first-child{color:var(--dim);white-space:nowrap}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:16px;
margin:20px 0}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;
padding:12px 14px}
figcaption{font-size:13px;color:var(--dim);margin-bottom:6px}
figcaption b{color:var(--fg);font-size:15px;display:block}
svg{display:block;width:100%;height:auto}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;color:var(--dim);margin-top:6px}
.legend i{display:inline-block;width:14px;height:3px;border-radius:2px;background:currentColor;
margin-right:6px;vertical-align:middle}
.note{color:var(--dim);font-size:13px;max-width:80ch}
"""

STYLE = f"{COLOURS}{_PAGE}{CHARTS}"
