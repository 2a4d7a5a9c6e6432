"""What is said about views: what their weights are worth, and what a reader has to know."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.pareto import shape_limit

from .views_look import Seen

MANY_NOTES = 4
MUCH_IN_TAILS = 0.5


def worth(seen: Sequence[Seen]) -> tuple[str, ...]:
    """What the weights are worth, of each view or of the worst one."""
    shown = seen if len(seen) <= MANY_NOTES else [min(seen, key=lambda view: view.worth)]
    return tuple(
        f"{view.name}: {len(view.points)} points worth {view.worth:.0f} draws, Pareto k-hat {view.shape:.2f}."
        for view in shown
    )


def doubts(view: Seen) -> tuple[str, ...]:
    """What a reader has to know about one view."""
    found = []
    limit = shape_limit(len(view.points))
    if view.shape > limit:
        found.append(
            f"{view.name}: Pareto k-hat of the weights is {view.shape:.2f}, dependable up to {limit:.2f}: the "
            "posterior lies where few points were drawn. Raise num_draws, or compare with another rule."
        )
    if view.in_tails > MUCH_IN_TAILS:
        found.append(
            f"{view.name}: {100 * view.in_tails:.0f} % of the posterior lies where a shard has few draws, on "
            "average over shards: Gaussian tails decide. Shards disagree; make longer chains or fewer shards."
        )
    return tuple(found)
