"""The models that are timed: transformers' own classes with random weights, their inputs, and the chains that
take the place of their linear layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.bench.advise import Experience, Layer, advise
from kronsparse.bench.networks.replacing import linear_layers
from kronsparse.chains import Chain, as_chain, monarch

BLOCKS = 16  # of the set monarch16
CONTEXT = 512  # tokens that a cache holds before the one that is decoded
DECODED = (1, 16, 128)
# A chain that is advised uses at least this share of the parameters, and no less than all of the rank.
USED_AT_LEAST = 2 / 3
ATTENTION = "kronsparse_bench"


@dataclass(frozen=True)
class Scene:
    """A model at work: on whole sequences, or on one token of each with a cache of those before it."""

    name: str
    model: str  # vit, gpt2, llama
    width: int
    depth: int
    heads: int
    inner: int  # the width inside of a feed-forward network
    batch: int  # images or sequences
    tokens: int  # of each, that are computed
    context: int = 0  # tokens before these, which a cache holds
    side: int = 224  # of an image
    patch: int = 16
    words: int = 1000  # of the vocabulary: its size does not change the time of the layers

    @property
    def samples(self) -> int:
        """The batch of the linear layers inside of blocks."""
        return self.batch * self.tokens


def scenes() -> dict[str, Scene]:
    """By name: ViT-S/16, GPT-2 medium, four layers of Llama-7B.

    >>> [scenes()[name].samples for name in ("vit", "gpt2-prefill", "llama-decode-16")]
    [25216, 16384, 16]
    """
    gpt2 = Scene("gpt2-prefill", "gpt2", 1024, 24, 16, 4096, 16, 1024)
    llama = Scene("llama-prefill", "llama", 4096, 4, 32, 11008, 4, 2048)
    found = [Scene("vit", "vit", 384, 12, 6, 1536, 128, 197), gpt2, llama]
    for prefill in (gpt2, llama):
        found += [
            replace(prefill, name=f"{prefill.model}-decode-{batch}", batch=batch, tokens=1, context=CONTEXT)
            for batch in DECODED
        ]
    return {scene.name: scene for scene in found}


def small_scenes() -> dict[str, Scene]:
    """The same with models that a CPU runs at once: to try the command.

    >>> small_scenes()["vit"].samples, small_scenes()["gpt2-decode-16"].batch
    (10, 2)
    """
    sizes: dict[str, dict[str, Any]] = {
        "vit": {"width": 48, "inner": 192, "batch": 2, "tokens": 5, "side": 32},
        "gpt2": {"width": 64, "inner": 256, "batch": 2, "tokens": 6},
        "llama": {"width": 64, "inner": 96, "batch": 2, "tokens": 6},
    }
    found = {}
    for name, scene in scenes().items():
        tiny = replace(scene, depth=2, heads=2, words=50, **sizes[scene.model])
        decoding: dict[str, Any] = {}
        if scene.context:
            decoding = {"tokens": 1, "context": 5, "batch": min(2, scene.batch)}
        found[name] = replace(tiny, **decoding)
    return found


# The models of the paper's Table 7: width, depth, heads, patch.
VISION_SIZES = {
    "ViT-S/16": (384, 12, 6, 16),
    "ViT-B/16": (768, 12, 12, 16),
    "ViT-L/16": (1024, 24, 16, 16),
    "ViT-H/14": (1280, 32, 16, 14),
}


def vision_scene(name: str, small: bool = False) -> Scene:
    """A vision transformer of the paper's Table 7, for 128 images.

    >>> vision_scene("ViT-H/14").tokens
    257
    """
    width, depth, heads, patch = VISION_SIZES[name]
    if small:
        return replace(small_scenes()["vit"], name=name)
    tokens = (224 // patch) ** 2 + 1
    return Scene(name, "vit", width, depth, heads, 4 * width, 128, tokens, patch=patch)


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: object, **options: Any) -> Any:
    """torch's attention without a mask. transformers makes one whenever it is captured or compiled, which
    keeps torch from its fastest kernels; nothing is padded here."""
    is_causal = bool(getattr(module, "is_causal", True)) and query.shape[2] > 1
    groups = query.shape[1] // key.shape[1]
    attended = nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=is_causal, scale=options.get("scaling"), enable_gqa=groups > 1
    )
    return attended.transpose(1, 2).contiguous(), None


def build(scene: Scene, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The dense model, with random weights."""
    import transformers  # type: ignore[import-not-found,unused-ignore]

    transformers.AttentionInterface.register(ATTENTION, _attention)
    with torch.device(device):
        if scene.model == "vit":
            settings = transformers.ViTConfig(
                hidden_size=scene.width,
                num_hidden_layers=scene.depth,
                num_attention_heads=scene.heads,
                intermediate_size=scene.inner,
                image_size=scene.side,
                patch_size=scene.patch,
                attn_implementation=ATTENTION,
            )
            model = transformers.ViTModel(settings, add_pooling_layer=False)
        elif scene.model == "gpt2":
            settings = transformers.GPT2Config(
                n_embd=scene.width,
                n_layer=scene.depth,
                n_head=scene.heads,
                n_inner=scene.inner,
                n_positions=1024,
                vocab_size=scene.words,
                bos_token_id=None,
                eos_token_id=None,
                attn_implementation=ATTENTION,
            )
            model = transformers.GPT2Model(settings)
        else:
            settings = transformers.LlamaConfig(
                hidden_size=scene.width,
                num_hidden_layers=scene.depth,
                num_attention_heads=scene.heads,
                intermediate_size=scene.inner,
                max_position_embeddings=4096,
                vocab_size=scene.words,
                attn_implementation=ATTENTION,
            )
            model = transformers.LlamaModel(settings)
    made: nn.Module = model.to(device, dtype).eval().requires_grad_(False)
    return made


class FullCache:
    """Keys and values of tokens that were computed before: a call writes its own in the last place, and
    attends to all. Each call finds the same state, in a CUDA graph as outside of one.

    It has those methods of transformers' caches that models call.
    """

    is_compileable = False

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values

    @classmethod
    def random(cls, scene: Scene, device: torch.device, dtype: torch.dtype) -> FullCache:
        """A cache for a scene, standard normal."""
        shape = (scene.batch, scene.heads, scene.context + 1, scene.width // scene.heads)
        made = [[torch.randn(shape, device=device).to(dtype) for _ in range(scene.depth)] for _ in range(2)]
        return cls(*made)

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: object) -> tuple[Tensor, Tensor]:
        """The keys and values that a layer attends to."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys[:, :, -1:], values[:, :, -1:] = key, value
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of tokens before those of a call."""
        return int(self.keys[layer_idx].shape[2]) - 1

    def picked(self, samples: Tensor, dtype: torch.dtype) -> FullCache:
        """A copy for some of the sequences, in another dtype."""
        return FullCache(*([one[samples].to(dtype) for one in ones] for ones in (self.keys, self.values)))


@dataclass(frozen=True)
class Inputs:
    """The arguments of a call, of which every tensor with the whole batch can be cut to some samples."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    def call(self, module: Callable[..., Any]) -> Tensor:
        """The module's first output."""
        return first_tensor(module(*self.arguments, **self.named))

    def picked(self, samples: Tensor, batch: int, dtype: torch.dtype) -> Inputs:
        """For some of the samples, with floating-point numbers in this dtype."""

        def pick(given: Any) -> Any:
            if isinstance(given, FullCache):
                return given.picked(samples, dtype)
            if isinstance(given, (tuple, list)):
                return type(given)(pick(one) for one in given)
            if not isinstance(given, Tensor):
                return given
            cut = given[samples] if given.dim() and given.shape[0] == batch else given
            return cut.to(dtype) if cut.is_floating_point() else cut

        return Inputs(pick(self.arguments), {name: pick(one) for name, one in self.named.items()})


def first_tensor(output: Any) -> Tensor:
    """A tensor, or the first of a tuple or of what transformers' models return."""
    while not isinstance(output, Tensor):
        output = output[0]
    return output


def inputs_of(scene: Scene, device: torch.device, dtype: torch.dtype) -> Inputs:
    """Random images or tokens."""
    if scene.model == "vit":
        images = torch.randn(scene.batch, 3, scene.side, scene.side, device=device).to(dtype)
        return Inputs((images,), {})
    tokens = torch.randint(0, scene.words, (scene.batch, scene.tokens), device=device)
    cache = FullCache.random(scene, device, dtype) if scene.context else None
    return Inputs((tokens,), {"past_key_values": cache, "use_cache": False})


def inputs_of_part(model: nn.Module, name: str, inputs: Inputs) -> Inputs:
    """The arguments that a part of the model gets when the whole is called."""
    caught: list[Inputs] = []

    def catch(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        caught.append(Inputs(arguments, named))

    handle = model.get_submodule(name).register_forward_pre_hook(catch, with_kwargs=True)
    try:
        with torch.no_grad():
            inputs.call(model)
    finally:
        handle.remove()
    return caught[0]


def part_names(model: nn.Module) -> dict[str, str]:
    """The first block, its attention and its feed-forward network, by their names in the model; those that
    are modules of their own."""
    lists = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.ModuleList)]
    if not lists:
        return {}
    block = f"{lists[0][0]}.0"
    found = {"block": block}
    for name, child in model.get_submodule(block).named_children():
        if "attention" in type(child).__name__.lower():
            found["attention"] = f"{block}.{name}"
        if "mlp" in type(child).__name__.lower():
            found["ffn"] = f"{block}.{name}"
    return found


def paper_chain(scene: Scene, cols: int, rows: int) -> Chain | None:
    """The pattern that the paper has for a layer, at the width of the model; nothing where it has none.

    >>> print(paper_chain(scenes()["vit"], 384, 1536))
    1x768x192x2*6x64x64x1
    >>> print(paper_chain(scenes()["vit"], 1536, 384))
    1x128x128x3*6x64x256x1
    >>> print(paper_chain(scenes()["gpt2-prefill"], 4096, 1024))
    1x64x256x16*64x64x64x1
    """
    n = scene.width
    patterns: list[tuple[int, int, int, int]] | None = None
    if scene.model == "vit":
        patterns = {
            (n, n): [(1, n // 2, n // 8, 2), (2, n // 8, n // 2, 1)],
            (n, 4 * n): [(1, 2 * n, n // 2, 2), (6, n // 6, n // 6, 1)],
            (4 * n, n): [(1, n // 3, n // 3, 3), (6, n // 6, 4 * n // 6, 1)],
        }.get((cols, rows))
    elif scene.model == "gpt2" and (cols, rows) == (4 * n, n):
        patterns = [(1, n // 16, n // 4, 16), (n // 16, 64, 64, 1)]
    return None if patterns is None else as_chain(patterns, rows, cols)


def monarch_chain(_: Scene, cols: int, rows: int) -> Chain | None:
    """Monarch with 16 blocks, where they divide the sizes."""
    return None if cols % BLOCKS or rows % BLOCKS else monarch(rows, cols, BLOCKS)


SETS: dict[str, Callable[[Scene, int, int], Chain | None]] = {
    "paper": paper_chain,
    "monarch16": monarch_chain,
}
ADVISED = "advised-"  # a set chosen by `advise`, at the parameters of the set whose name follows
Predict = Callable[[str], float]


def sets_of(scene: Scene) -> list[str]:
    """The sets of chains that are timed in a scene.

    >>> sets_of(scenes()["vit"]), sets_of(scenes()["llama-prefill"])
    (['paper', 'monarch16', 'advised-paper'], ['monarch16', 'advised-monarch16'])
    """
    if scene.model == "llama":
        return ["monarch16", f"{ADVISED}monarch16"]
    return ["paper", "monarch16", f"{ADVISED}{'paper' if scene.model == 'vit' else 'monarch16'}"]


def advised(like: Chain, layer: Layer, predict: Predict) -> Chain:
    """The chain predicted to be the fastest with about as many parameters, and no lower rank where there is
    one."""
    found = [
        one.proposal
        for one in advise(layer, like.nnz, predict, Experience())
        if one.proposal.parameters >= USED_AT_LEAST * like.nnz
    ]
    rank = min(like.rows, *(pattern.cols for pattern in like))
    ranked = [one for one in found if one.rank >= rank]
    return (ranked or found)[0].chain if found else like


def chains_for(
    scene: Scene, model: nn.Module, set_name: str, dtype: str, predict: Predict
) -> dict[str, Chain]:
    """The chain of each layer that a set replaces, by the layer's name in the model."""
    base = set_name.removeprefix(ADVISED)
    found, known = {}, {}
    for name, (cols, rows) in linear_layers(model).items():
        chain = SETS[base](scene, cols, rows)
        if chain is None:
            continue
        if set_name.startswith(ADVISED):
            if (cols, rows) not in known:
                mode = "fp32" if dtype == "f32" else ""
                layer = Layer(rows, cols, dtype, mode, "batch_first", scene.samples)
                known[cols, rows] = advised(chain, layer, predict)
            chain = known[cols, rows]
        found[name] = chain
    if not found:
        raise ValueError(f"set {set_name}: no layer of {scene.name} is replaced by it")
    return found


def sparsity(chains: Mapping[str, Chain]) -> float:
    """The share of weights of the replaced layers that are saved."""
    dense = math.fsum(chain.rows * chain.cols for chain in chains.values())
    return 1 - math.fsum(chain.nnz for chain in chains.values()) / dense
