"""The command `stillery methods`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["method_table", "methods", "option_value", "parts_listed", "start_and_terms"]


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method in full.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    parts: Annotated[bool, typer.Option("--parts", help="List the parts that methods are composed of.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the papers' settings for --preset.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of docs/methods.md.")] = False,
) -> None:
    """List the methods, their papers and their parts."""
    from stillery import methods as known
    from stillery.cli.show import print_json

    if presets:
        _show_presets(as_json=json)
        return
    if parts:
        _show_parts(as_json=json)
        return
    if not (name or json or markdown):
        _show_list()
        return
    described = [known.describe(one) for one in ([name] if name else known.names())]
    if json:
        print_json(described)
    elif markdown:
        print(_markdown(described))
    else:
        _show(described[0])


def _show_list() -> None:
    """Print every method in a line, those to try first at the top."""
    from stillery.methods import listed

    found = listed()
    width = max(len(method.name) for methods in found.values() for method in methods)
    for group, methods in found.items():
        print(f"{group}:")
        for method in methods:
            print(f"  {method.name:<{width}}  {method.summary}")
        print()
    print("`stillery methods NAME` shows a method's paper, parts and options.")


def _show_presets(*, as_json: bool) -> None:
    from stillery.cli.show import print_json
    from stillery.jobs.config.presets import PRESETS

    if as_json:
        print_json({name: vars(preset) for name, preset in PRESETS.items()})
        return
    width = max(map(len, PRESETS))
    for name, preset in PRESETS.items():
        print(f"{name:<{width}} {preset.job:<9} {preset.source}")


_KINDS = {
    "pairing": "--pair",
    "representation": "--represent",
    "distance": "--distance",
    "reduction": "--reduction",
    "divergence": "--divergence",
    "schedule": "--schedule",
}


def _show_parts(*, as_json: bool) -> None:
    """Print every part and its help text, by the option that selects it."""
    from stillery.cli.show import print_json
    from stillery.words import part_words

    found = {kind: [one for one in part_words() if one.kind == kind] for kind in _KINDS}
    if as_json:
        print_json({kind: {one.word: one.help for one in parts} for kind, parts in found.items()})
        return
    print(parts_listed(), end="")


def parts_listed() -> str:
    """Return every part and its help text, by the option that selects it."""
    from stillery.words import part_words

    lines = []
    for kind, option in _KINDS.items():
        lines.append(f"{option}:")
        lines += [f"  {one.word:<18} {one.help}" for one in part_words() if one.kind == kind]
    return "\n".join(lines) + "\n"


def _parts(match: dict[str, Any]) -> str:
    """Describe a match in a line: representation, pairing, distance, reduction and weight."""
    weight = match["weight"] if isinstance(match["weight"], str) else f"{match['weight']:g}"
    pieces = [match["represent"], match["pair"], match["combine"], match["flow"], match["judge"]]
    pieces += [] if match["judge"] else [match["project"], match["distance"]]
    mixed = " on mixed examples" if match["view"] == "mixed" else ""
    against = ", against the student itself" if match["against"] == "student" else ""
    reduced = f"{match['reduction']} within and {match['over_pairs']} over pairs"
    return f"{', '.join(piece for piece in pieces if piece)}, {reduced}{mixed}{against}, x {weight}"


def _losses(stage: dict[str, Any]) -> dict[str, str]:
    """Describe the loss terms of a stage by name, one line each."""
    lines = {}
    if stage["hard_weight"]:
        lines["hard"] = f"labels' loss, x {stage['hard_weight']:g}"
    soft = stage["prediction"]
    if soft:
        square = ", times T^2" if soft["square"] else ""
        lines["soft"] = f"{soft['divergence']} at temperature {soft['temperature']:g}{square}, x {soft['weight']:g}"
    return lines | {match["name"]: _parts(match) for match in stage["matches"]}


def option_value(value: Any) -> str:
    """Return the default of an option as text."""
    if value is None:
        return "set by the others"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def method_table(described: list[dict[str, Any]]) -> str:
    """Return a Markdown table of methods: name, summary, paper."""
    lines = ["| method | what it does | paper |", "|---|---|---|"]
    for one in described:
        summary, paper = (one[key].replace("|", "\\|") for key in ("summary", "paper"))
        lines.append(f"| `{one['name']}` | {summary} | {paper} |")
    return "\n".join(lines)


def start_and_terms(method: dict[str, Any]) -> list[str]:
    """Return the initialisation of a method's student, and its loss terms, as lines of Markdown."""
    lines = [f"Student: starts {method['start']}; head `{method['head']}`. Terms:", ""]
    for stage in method["stages"]:
        share = f" ({stage['name']}, share {stage['share']:g})" if len(method["stages"]) > 1 else ""
        lines += [f"- `{name}`{share}: {text}" for name, text in _losses(stage).items()]
    return lines


def _markdown(described: list[dict[str, Any]]) -> str:
    lines = [method_table(described)]
    for one in described:
        lines += ["", f"### {one['name']}", "", *(one["details"].splitlines() or [one["summary"]]), ""]
        lines += start_and_terms(one)
        options = ", ".join(
            f"`{name}` {option_value(value)} ({one['sources'][name]})" for name, value in one["options"].items()
        )
        lines += ["", f"Options: {options}."]
    return "\n".join(lines)


def _show(method: dict[str, Any]) -> None:
    print(f"{method['name']}: {method['details'] or method['summary']}")
    print(f"paper: {method['paper']}")
    print(f"student: starts {method['start']}; head {method['head']}")
    for stage in method["stages"]:
        print(f"stage {stage['name']} (share of steps {stage['share']:g}):")
        for name, text in _losses(stage).items():
            print(f"  {name}: {text}")
    print("options (--option NAME=VALUE), their defaults and where those come from:")
    for option, default in method["options"].items():
        print(f"  {option} = {option_value(default)}  ({method['sources'][option]})")
