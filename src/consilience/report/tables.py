"""Tables as HTML: the summary, the shards, costs, and whatever a dict says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.report.text import decimals_for, duration, escape, fixed, significant

if TYPE_CHECKING:
    import pandas as pd

HEADINGS = {
    "mean": "mean",
    "sd": "sd",
    "mcse": "MCSE",
    "ess": "ESS",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "rhat": "R-hat",
    "step_size": "step size",
}
MOST_SHARD_ROWS = 500
LOW_ESS = 400


def summary_cells(frame: pd.DataFrame) -> list[list[tuple[str, int, bool]]]:
    """Every cell as text, the decimals it shows (-1: not a decimal number), and whether it is worryingly low.

    Estimates are shown to the first digit that their Monte Carlo standard error reaches: more would be noise.
    """
    rows = []
    for _, record in frame.iterrows():
        mean, sd = float(record.get("mean", np.nan)), float(record.get("sd", np.nan))
        mcse = float(record.get("mcse", np.nan))
        places = decimals_for(mean, mcse if mcse > 0 else sd / 100)
        row = []
        for column, value in record.items():
            number = float(value)
            if str(column).startswith("ess"):
                row.append((significant(round(number)) if np.isfinite(number) else "–", -1, number < LOW_ESS))
            elif column == "mcse":
                row.append((significant(number, 2), -1, False))
            elif column == "rhat":
                row.append((fixed(number, 3), -1, number > 1.01))
            else:
                row.append(
                    (fixed(number, places), -1 if "e" in fixed(number, places) else max(places, 0), False)
                )
        rows.append(row)
    return rows


def summary_table(frame: pd.DataFrame) -> str:
    """The summary with its decimal points in line."""
    cells = summary_cells(frame)
    columns = [str(column) for column in frame.columns]
    deepest = [max((row[k][1] for row in cells), default=-1) for k in range(len(columns))]
    head = "".join(f"<th scope=col>{escape(HEADINGS.get(name, name))}</th>" for name in columns)
    body = []
    for name, row in zip(frame.index, cells, strict=True):
        tds = []
        for k, (text, places, low) in enumerate(row):
            missing = min(deepest[k] - places, 6) if places >= 0 else 0
            point = 0.28 if places == 0 and deepest[k] > 0 else 0.0
            pad = f' style="padding-right:calc(.8rem + {missing}ch + {point:g}em)"' if missing else ""
            tds.append(f"<td{' class=low' if low else ''}{pad}>{text}</td>")
        body.append(f'<tr><th scope=row title="{escape(name)}">{escape(name)}</th>{"".join(tds)}</tr>')
    return _scrolled("summary", f"<th scope=col class=text>parameter</th>{head}", body)


def frame_table(
    frame: pd.DataFrame, bad: Collection[int] = (), corner: str = "", most: int = MOST_SHARD_ROWS
) -> str:
    """Any frame with one row per thing; ``bad`` rows are red and come first when not all rows fit."""
    order = list(range(len(frame)))
    if len(order) > most:
        order = sorted(order, key=lambda i: i not in bad)[:most]
    is_text = [not _is_numeric(frame.iloc[:, k]) for k in range(frame.shape[1])]
    kinds = [" class=text" if text else "" for text in is_text]
    names = [str(column) for column in frame.columns]
    head = "".join(
        f"<th scope=col{kind}>{escape(HEADINGS.get(name, name))}</th>"
        for kind, name in zip(kinds, names, strict=True)
    )
    records = list(frame.itertuples(index=False, name=None))
    body = []
    for i in order:
        cells = "".join(
            f"<td{kind}>{escape(_cell(name, value))}</td>"
            for kind, name, value in zip(kinds, names, records[i], strict=True)
        )
        row_class = " class=bad" if i in bad else ""
        body.append(f"<tr{row_class}><th scope=row>{escape(frame.index[i])}</th>{cells}</tr>")
    rest = f"<p class=caption>{len(frame) - most:,} more rows are not shown.</p>" if len(frame) > most else ""
    return _scrolled("dense", f"<th scope=col class=text>{escape(corner)}</th>{head}", body) + rest


def _scrolled(kind: str, head: str, body: Sequence[str]) -> str:
    lines = "\n".join(body)
    return (
        f'<div class="scroll {kind}" tabindex=0><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _is_numeric(column: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column) and not is_bool_dtype(column))


def _cell(column: str, value: Any) -> str:
    if column == "rhat":
        return fixed(float(value), 3)
    if column == "seconds":
        return significant(value, 3)
    if column.startswith("ess") and isinstance(value, float) and np.isfinite(value):
        return f"{value:,.0f}"
    return significant(value, 3)


def cost_table(cost: Mapping[str, Any]) -> str:
    """Seconds and full-data gradients by stage, with bars; everything else below."""
    seconds, gradients = by_stage(cost.get("seconds")), by_stage(cost.get("full_data_gradients"))
    stages = list(dict.fromkeys([*seconds, *gradients]))
    stages = [stage for stage in stages if stage != "total"] + (["total"] if "total" in stages else [])
    longest = max((value for stage, value in seconds.items() if stage != "total"), default=0.0)
    body = []
    for stage in stages:
        time = escape(duration(seconds[stage])) if stage in seconds else ""
        looks = escape(significant(gradients[stage])) if stage in gradients else ""
        share = seconds.get(stage, 0.0) / longest if longest > 0 and stage != "total" else 0.0
        bar = f'<i style="width:{100 * share:.1f}%"></i>' if share > 0 else ""
        body.append(
            f"<tr{' class=total' if stage == 'total' else ''}><th scope=row>{escape(stage)}</th>"
            f"<td>{time}</td><td class=bar>{bar}</td><td>{looks}</td></tr>"
        )
    head = "<th scope=col class=text>stage</th><th scope=col>time</th><th></th>"
    table = _scrolled("cost", head + "<th scope=col>full-data gradients</th>", body) if body else ""
    others = {key: value for key, value in cost.items() if key not in ("seconds", "full_data_gradients")}
    return table + (definition_table(others) if others else "")


def by_stage(spent: Any) -> dict[str, float]:
    """A cost given as one number or by stage, with its total.

    Examples
    --------
    >>> by_stage({"sample": 3, "combine": 1}), by_stage(2.5), by_stage(None)
    ({'sample': 3.0, 'combine': 1.0, 'total': 4.0}, {'total': 2.5}, {})
    """
    if spent is None:
        return {}
    if not isinstance(spent, Mapping):
        return {"total": float(spent)}
    stages = {str(stage): float(value) for stage, value in spent.items() if value is not None}
    if stages and "total" not in stages:
        stages["total"] = sum(stages.values())
    return stages


def definition_table(content: Mapping[str, Any]) -> str:
    """A dict as a table of two columns; dicts inside become tables inside."""
    rows = "".join(
        f"<tr><th scope=row>{escape(str(key).replace('_', ' '))}</th><td>{_value(str(key), value)}</td></tr>"
        for key, value in content.items()
    )
    return f'<div class="scroll"><table class=pairs><tbody>{rows}</tbody></table></div>'


def _value(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        rows = "".join(
            f"<tr><th scope=row>{escape(name)}</th><td>{_value('', inner)}</td></tr>"
            for name, inner in value.items()
        )
        return f"<table class=pairs><tbody>{rows}</tbody></table>" if value else "none"
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        return (
            escape(", ".join(items[:200]) + (f" and {len(items) - 200} more" if len(items) > 200 else ""))
            or "none"
        )
    text = escape(_plain(value))
    return f"<code>{text}</code>" if key in ("command", "formula", "fingerprint") else text


def _plain(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return (
        significant(value, 4) if isinstance(value, float | bool | np.number) or value is None else str(value)
    )
