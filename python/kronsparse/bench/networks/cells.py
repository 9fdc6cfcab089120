"""The cells of the table of `kronsparse-bench models`, which are measured one at a time, and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kronsparse.bench.networks import scenes as zoo
from kronsparse.bench.networks.scenes import Scene
from kronsparse.bench.reporting.models_section import cell_name
from kronsparse.bench.results.targets import MODEL_TARGETS

PARTS = ("model", "block", "ffn", "attention", "layer")


@dataclass(frozen=True)
class Cell:
    """One line of the table.

    >>> str(Cell("vit", "f16", "paper", "model", "graph"))
    'vit f16 paper model graph'
    """

    scene: str
    dtype: str
    set_name: str
    part: str
    run: str

    def __str__(self) -> str:
        return cell_name(vars(self) | {"set": self.set_name})

    def has(self, words: str) -> bool:
        """Whether all these words are among its own.

        >>> Cell("vit", "f16", "paper", "model", "graph").has("graph f16")
        True
        """
        return set(words.split()) <= set(str(self).split())


def cells(scenes: Mapping[str, Scene]) -> list[Cell]:
    """All of them, those first that matter most: whole models in graphs, and of these the ones that have a
    target; compiled ones last, because compiling takes longer than measuring.

    >>> print(*cells(zoo.scenes())[:2], sep=", ")
    vit f32 paper model graph, vit f16 paper model graph
    """
    order = ("f16", "f32", "bf16")
    everything = [
        (scene, kind, name) for kind in order for scene in scenes.values() for name in zoo.sets_of(scene)
    ]
    whole = [Cell(scene.name, kind, name, "model", "graph") for scene, kind, name in everything]
    aimed = [
        Cell(scene, kind, name, "model", "graph") for scene, name, kind in MODEL_TARGETS if scene in scenes
    ]

    def parts(run: str, wanted: Sequence[str]) -> list[Cell]:
        return [
            Cell(scene.name, kind, name, part, run)
            for scene, kind, name in everything
            for part in wanted
            if not scene.context or part in ("model", "block")  # decoding: a block is all there is
        ]

    # A compilation serves two runs: as it is, and in a graph.
    compiled = [
        cell for cell in parts("compiled", ("block", "model")) if not cell.set_name.startswith(zoo.ADVISED)
    ]
    compiled.sort(key=lambda cell: cell.part)
    piped = [
        Cell("vit", kind, name, "pipeline", run)
        for run in ("graph", "compiled-graph")
        for kind in order
        for name in ("paper", "monarch16")
        if "vit" in scenes
    ]
    shares = [
        Cell(name, kind, "dense", "linear-share", "eager") for kind in order[:2] for name in zoo.VISION_SIZES
    ]
    profiles = [cell for cell in parts("profile", ("model",)) if not cell.set_name.startswith(zoo.ADVISED)]
    rounds = (
        *(aimed, whole, parts("graph", PARTS[1:]), piped[: len(piped) // 2], profiles),
        *(shares, parts("eager", PARTS), compiled, piped[len(piped) // 2 :]),
    )
    return list(dict.fromkeys(cell for one in rounds for cell in one))
