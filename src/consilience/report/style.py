# ruff: noqa: E501 (rules of a style sheet read better on one line)
"""The page's style sheet: system fonts, light and dark, screen and paper; nothing from a network."""

from __future__ import annotations

from consilience.report.canvas import COLOURS

_DARK = {
    "ink": "#e6e9ee",
    "muted": "#9aa5b3",
    "rule": "#3a424d",
    "soft": "#262c35",
    "accent": "#6cb6f0",
    "shard": "#4d7394",
    "alarm": "#ff8f4d",
    "good": "#4cc9a0",
    "violet": "#c88ae0",
    "ochre": "#d9b13b",
    "rose": "#f08cb8",
}
_LIGHT_PAGE = {
    "paper": "#ffffff",
    "bad": "#b3160b",
    "bad-soft": "#fdecea",
    "good-soft": "#e6f5f0",
    "warn-soft": "#fdf1e6",
}
_DARK_PAGE = {
    "paper": "#14171c",
    "bad": "#ff7a6e",
    "bad-soft": "#3a1714",
    "good-soft": "#10302a",
    "warn-soft": "#38220f",
}


def _variables(*tables: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for table in tables for name, value in table.items())


_RULES = """
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans",Arial,sans-serif}
.frame{display:grid;grid-template-columns:minmax(0,960px);justify-content:center;gap:0 3rem;padding:2rem 1.25rem 4rem}
h1{font-size:1.75rem;line-height:1.25;margin:0 0 .35rem;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:2.9rem 0 .6rem;padding-top:1.1rem;border-top:1px solid var(--rule);letter-spacing:-.005em}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.5rem 0;max-width:46rem}
a{color:var(--accent)}
.kicker{color:var(--muted);font-size:.8rem;letter-spacing:.08em;text-transform:uppercase;margin:0 0 .3rem}
.facts{display:flex;flex-wrap:wrap;gap:.4rem 2.2rem;margin:.9rem 0 1.3rem;padding:0}
.facts div{min-width:4rem}
.facts dt{color:var(--muted);font-size:.78rem;margin:0}
.facts dd{margin:0;font-size:1.12rem;font-variant-numeric:tabular-nums}
nav{font-size:.88rem;margin:0 0 1rem}
nav ol{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.15rem 1.1rem}
nav a{color:var(--muted);text-decoration:none}
nav a:hover{color:var(--accent);text-decoration:underline}
.verdict{border:1px solid var(--rule);border-left:8px solid var(--muted);border-radius:6px;padding:1rem 1.3rem;
 background:var(--soft);break-inside:avoid}
.verdict h2{border:0;margin:0 0 .3rem;padding:0;font-size:1.3rem}
.verdict.good{border-left-color:var(--good);background:var(--good-soft)}
.verdict.caution{border-left-color:var(--alarm);background:var(--warn-soft)}
.verdict.bad{border:2px solid var(--bad);border-left-width:10px;background:var(--bad-soft)}
.verdict.bad h2{color:var(--bad)}
.verdict ul{margin:.5rem 0 .2rem;padding-left:1.2rem}
.verdict li{margin:.25rem 0;overflow-wrap:anywhere}
.verdict .certificate{white-space:pre-wrap}
.red{color:var(--bad);font-weight:600}
figure{margin:1rem 0 1.4rem}
.picture{overflow-x:auto}
.picture svg{display:block;width:100%;min-width:680px;height:auto}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans",Arial,sans-serif;
 font-variant-numeric:tabular-nums;white-space:pre}
figcaption,.caption{color:var(--muted);font-size:.88rem;line-height:1.5;max-width:46rem;margin-top:.5rem}
.key{display:inline-block;width:1.5em;height:0;border-top:2px solid;vertical-align:middle;margin:0 .25em 0 .1em}
.scroll{overflow:auto;max-height:40rem;border:1px solid var(--rule);border-radius:6px;margin:.8rem 0}
table{border-collapse:separate;border-spacing:0;font-size:.86rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.28rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--soft)}
thead th{position:sticky;top:0;background:var(--paper);border-bottom:1px solid var(--muted);font-weight:600;z-index:1}
tbody th,td.text,th.text{text-align:left;font-weight:500}
tbody th{max-width:24rem;overflow:hidden;text-overflow:ellipsis}
.summary tbody th{position:sticky;left:0;background:var(--paper)}
tbody tr:last-child>*{border-bottom:0}
tbody tr:hover>*{background:var(--soft)}
tr.bad>*{color:var(--bad);font-weight:600;background:var(--bad-soft)}
.dense th,.dense td{padding:.24rem .55rem;font-size:.8rem}
tr.total>*{font-weight:600;border-top:1px solid var(--rule)}
td.low{color:var(--alarm);font-weight:600}
.pairs th{vertical-align:top;width:13rem;color:var(--muted);font-weight:400;white-space:normal;overflow-wrap:anywhere}
.pairs td{text-align:left;white-space:normal;overflow-wrap:anywhere}
.bar{text-align:left;width:45%;min-width:8rem}
.bar i{display:block;height:.7em;background:var(--accent);border-radius:2px;min-width:1px}
details{border:1px solid var(--rule);border-radius:6px;margin:.6rem 0;padding:0 .9rem}
details>summary{cursor:pointer;padding:.55rem 0;font-size:.92rem;overflow-wrap:anywhere}
details[open]>summary{border-bottom:1px solid var(--soft);margin-bottom:.6rem}
code,pre{font:.86em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);padding:.7rem .9rem;border-radius:6px;margin:.7rem 0}
footer{color:var(--muted);font-size:.82rem;border-top:1px solid var(--rule);margin-top:3rem;padding-top:.8rem}
@media (min-width:1240px){
 .frame{grid-template-columns:11rem minmax(0,960px)}
 nav{position:sticky;top:2rem;align-self:start;padding-top:.4rem}
 nav ol{display:block}
 nav li{margin:.38rem 0}
}
@media (max-width:640px){h1{font-size:1.35rem}.frame{padding:1.1rem .8rem 2rem}th,td{padding:.25rem .5rem}}
@media print{
 body{font-size:10.5pt}
 .frame{display:block;padding:0}
 nav{display:none}
 .scroll{max-height:none;overflow:visible;border:0}
 .picture{overflow:visible}.picture svg{min-width:0}
 figure,tr{break-inside:avoid}
 h2{break-after:avoid}
 thead th,.summary tbody th{position:static}
 details{border:0;padding:0}
 details::details-content{content-visibility:visible;display:block;height:auto}
}
"""


def style_sheet() -> str:
    """Rules with the colours of both schemes; paper is always light."""
    light = _variables(COLOURS, _LIGHT_PAGE)
    dark = _variables(_DARK, _DARK_PAGE)
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n" + _RULES.strip()
    )
