"""`stillery methods`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["methods"]


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method in full.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods, their papers and their parts."""
    from stillery import methods as known
    from stillery.cli.show import print_json

    described = [known.describe(one) for one in ([name] if name else known.names())]
    if json:
        print_json(described)
    elif name:
        _show(described[0])
    else:
        for method in described:
            print(f"{method['name']:<18} {method['summary']}")
        print("\n`stillery methods NAME` shows a method's paper, parts and options.")


def _show(method: dict[str, Any]) -> None:
    print(f"{method['name']}: {method['summary']}")
    print(f"paper: {method['paper']}")
    print(f"student: initialised {method['init']}, head {method['head']}")
    for stage in method["stages"]:
        print(f"stage {stage['name']} (share of steps {stage['share']:g}):")
        print(f"  hard: labels' loss x {stage['hard_weight']:g}")
        if stage["prediction"]:
            soft = stage["prediction"]
            square = ", times T^2" if soft["square"] else ""
            print(f"  soft: {soft['divergence']} at temperature {soft['temperature']:g}{square}, x {soft['weight']:g}")
        for match in stage["matches"]:
            weight = match["weight"] if isinstance(match["weight"], str) else f"{match['weight']:g}"
            print(
                f"  {match['name']}: {match['represent']}, {match['pair']}, {match['project'] or 'no projection'}, "
                f"{match['distance']}, {match['reduction']} within and {match['over_pairs']} over pairs, "
                f"x {weight}"
            )
    print("options (--option NAME=VALUE):")
    for option, default in method["options"].items():
        print(f"  {option} = {'(set by the others)' if default is None else default}")
