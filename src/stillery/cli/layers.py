"""The command `stillery layers`."""

from __future__ import annotations

from typing import Annotated

import typer

from stillery.lines import listed, plain, show

__all__ = ["layers"]


def layers(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, or a name on the hub.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a model's stacks: layers, widths, heads and parameters."""
    from stillery.jobs.first_checks import check_models

    check_models(model)
    from stillery.cli.show import print_json
    from stillery.models.describe import describe

    found = describe(model)
    if json:
        print_json(found)
        return
    model = plain(found["model"])
    print(f"{model}: {found['type']}, {found['parameters']:,} parameters, vocabulary of {found['vocabulary']:,}")
    for stack in found["stacks"]:
        shared = "" if stack["key_heads"] == stack["heads"] else f" ({stack['key_heads']} of keys and values)"
        print(f"{stack['name']}: {stack['layers']} layers, width {stack['width']}, {stack['heads']} heads{shared}, "
              f"inner width {stack['inner']}")  # fmt: skip
        for row in stack["rows"]:
            print(f"  {row['layer']:>3}  {plain(row['name']):<40} {row['parameters']:>12,}")
    if found["tied_head"] is not None:
        print(f"head: the next token, {'tied to the embeddings' if found['tied_head'] else 'with weights of its own'}")
        return
    labels = found["labels"]
    show(f"head: {listed(labels, 20) if labels else 'none (fine-tune it before it can teach labels)'}")
