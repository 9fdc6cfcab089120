"""The report of `convert`: an object, a table and an HTML page."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kronsparse.bench.reporting.document import Document, Section, Table, markdown_table, to_html
from kronsparse.chains import Chain


@dataclass
class LayerReport:
    """One linear layer of a model."""

    name: str
    rows: int
    cols: int
    chain: Chain | None = None
    """None where the layer is kept dense"""
    reason: str = ""
    """why it is kept dense, or which rule gave the chain"""
    parameters: int = 0
    """those of the matrix or of the factors, now"""
    error: float = math.nan
    """the relative error of the matrix, or of the outputs where calibration data was given; nan for fresh
    values"""
    lower_bound: float = math.nan
    """the certificate: no product of the chain has a smaller error"""
    predicted_s: float = math.nan
    dense_predicted_s: float = math.nan
    """seconds that a frozen layer and its dense twin should take"""
    measured_s: float = math.nan
    dense_measured_s: float = math.nan
    """seconds that they took, where that was asked for"""
    other_names: tuple[str, ...] = ()
    """where the same layer or its weights stand, too"""

    @property
    def is_converted(self) -> bool:
        return self.chain is not None

    @property
    def dense_parameters(self) -> int:
        return self.rows * self.cols


@dataclass
class ConversionReport:
    """All linear layers of a model, in its order."""

    layers: list[LayerReport] = field(default_factory=list)
    batch: int = 0
    """samples that times are for"""
    device: str = "cpu"
    is_weighted: bool = False
    """whether errors are those of outputs, by the covariance of the inputs"""

    @property
    def converted(self) -> list[LayerReport]:
        return [layer for layer in self.layers if layer.is_converted]

    @property
    def kept(self) -> list[LayerReport]:
        return [layer for layer in self.layers if not layer.is_converted]

    @property
    def chains(self) -> dict[str, str]:
        """The chain of every converted layer, by name: with fresh values, rules that make the same model."""
        return {
            name: str(layer.chain) for layer in self.converted for name in (layer.name, *layer.other_names)
        }

    def table(self) -> Table:
        """A line for each layer."""
        headers = ["layer", "sizes", "chain", "parameters", "error", "at least"]
        headers += ["predicted us", "dense", "measured us", "dense", "why"]
        rows = []
        for layer in self.layers:
            share = f"{100 * layer.parameters / layer.dense_parameters:.1f} %"
            rows.append(
                [
                    layer.name or "(the model)",
                    f"{layer.rows}x{layer.cols}",
                    str(layer.chain) if layer.chain is not None else "dense",
                    share,
                    *(_number(one, 1) for one in (layer.error, layer.lower_bound)),
                    *(_number(one, 1e6) for one in (layer.predicted_s, layer.dense_predicted_s)),
                    *(_number(one, 1e6) for one in (layer.measured_s, layer.dense_measured_s)),
                    layer.reason,
                ]
            )
        return Table(headers, rows)

    def summary(self) -> str:
        """One sentence."""
        before = sum(layer.dense_parameters for layer in self.layers)
        after = sum(layer.parameters for layer in self.layers)
        return (
            f"{len(self.converted)} of {len(self.layers)} linear layers are chains; their matrices had "
            f"{before} parameters and have {after}"
        )

    def __str__(self) -> str:
        return f"{markdown_table(self.table())}\n\n{self.summary()}."

    def html(self) -> str:
        """A page that needs nothing but itself."""
        errors = "of the outputs, by the inputs' covariance" if self.is_weighted else "of the matrix"
        text = (
            f"{self.summary()}. Errors are relative ones {errors}; no product of a chain has a smaller one "
            f"than `at least`. Times are for {self.batch} samples on {self.device}."
        )
        return to_html(Document("Converted layers", [Section("Layers", [text, self.table()])]))


def _number(number: float, scale: float) -> str:
    return "" if math.isnan(number) else f"{number * scale:.3g}"
