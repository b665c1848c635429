"""The network of calf with eyes: Gemma 3's, a SigLIP tower, a projector and a text network.

The parts have the names that Hugging Face gives them.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from tools.calf.pictures import COLOURS, KINDS, SIDE

PATCH, POOLED = 20, 3
GRID = SIDE // PATCH
POSITIONS = POOLED**2
VOCABULARY = 448
MARKS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 2048,
    "sliding_window_pattern": 1,
    "layer_types": ["full_attention"] * 4,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "tie_word_embeddings": True,
}
EYES = {
    "model_type": "siglip_vision_model",
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "image_size": SIDE,
    "patch_size": PATCH,
    "layer_norm_eps": 1e-6,
    "hidden_act": "gelu_pytorch_tanh",
    "vision_use_head": False,
}
PREPROCESSING = {
    "image_processor_type": "Gemma3ImageProcessor",
    "do_resize": True,
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "image_seq_length": POSITIONS,
}


class Part(nn.Module):
    """What holds other modules under their names."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class Layer(nn.Module):
    """A layer of the tower."""

    def __init__(self, dims, hidden, heads):
        super().__init__()
        self.heads = heads
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        self.self_attn = Part(**{name: nn.Linear(dims, dims) for name in names})
        self.mlp = Part(fc1=nn.Linear(dims, hidden), fc2=nn.Linear(hidden, dims))
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(dims, 1e-6), nn.LayerNorm(dims, 1e-6)

    def __call__(self, x, attention, gelu):
        """Return its result for (B, N, D)."""
        normed, own = self.layer_norm1(x), self.self_attn
        q, k, v = (
            project(normed).reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)
            for project in (own.q_proj, own.k_proj, own.v_proj)
        )
        scale = q.shape[-1] ** -0.5
        attended = attention(q * scale, k, v, mx.zeros((1, 1)))[0]
        x = x + own.out_proj(attended.swapaxes(1, 2).reshape(x.shape))
        return x + self.mlp.fc2(gelu(self.mlp.fc1(self.layer_norm2(x))))


class Projector(nn.Module):
    """Means of neighbouring patches, a norm and a matrix."""

    def __init__(self, dims, width):
        super().__init__()
        self.mm_soft_emb_norm = Part(weight=mx.zeros((dims,)))
        self.mm_input_projection_weight = mx.random.normal((dims, width)) * dims**-0.5

    def __call__(self, hidden):
        """Return rows (B, POSITIONS, width) for (B, N, D)."""
        each = GRID // POOLED
        grid = hidden.reshape(hidden.shape[0], POOLED, each, POOLED, each, -1)
        mean = grid.mean(axis=(2, 4)).reshape(hidden.shape[0], POSITIONS, -1)
        weight = 1.0 + self.mm_soft_emb_norm.weight
        return mx.fast.rms_norm(mean, weight, 1e-6) @ self.mm_input_projection_weight


class Eyes(nn.Module):
    """The whole, and the heads that tell what each patch shows, which only training has.

    `gemma` is mlx_lm's gemma3_text; attention and gelu are used by the tower.
    """

    def __init__(self, gemma, attention, gelu):
        super().__init__()
        dims, width = EYES["hidden_size"], TEXT["hidden_size"]
        self._attention, self._gelu = attention, gelu
        self.language_model = gemma.Model(gemma.ModelArgs.from_dict(TEXT))
        self.language_model.tie_word_embeddings = True
        self.language_model.pop("lm_head")
        embeddings = Part(
            patch_embedding=nn.Linear(3 * PATCH**2, dims),
            position_embedding=nn.Embedding(GRID**2, dims),
        )
        sizes = dims, EYES["intermediate_size"], EYES["num_attention_heads"]
        layers = [Layer(*sizes) for _ in range(EYES["num_hidden_layers"])]
        whole = {"embeddings": embeddings, "encoder": Part(layers=layers)}
        whole["post_layernorm"] = nn.LayerNorm(dims, 1e-6)
        self.vision_tower = Part(vision_model=Part(**whole))
        self.multi_modal_projector = Projector(dims, width)
        kinds, colours = nn.Linear(dims, 1 + len(KINDS)), nn.Linear(dims, 1 + len(COLOURS))
        self.heads = Part(kind=kinds, colour=colours)
        for module in self.language_model.modules():
            if isinstance(module, gemma.RMSNorm):
                module.weight = mx.zeros_like(module.weight)

    def look(self, patches):
        """The hidden states (B, N, D) of patches (B, N, 3 * PATCH²)."""
        tower = self.vision_tower.vision_model
        x = tower.embeddings.patch_embedding(patches) + tower.embeddings.position_embedding.weight
        for layer in tower.encoder.layers:
            x = layer(x, self._attention, self._gelu)
        return tower.post_layernorm(x)

    def read(self, rows, hidden, soft):
        """The logits of rows (B, L), whose `soft` tokens stand for the images in order."""
        table = self.language_model.model.embed_tokens
        scale = mx.array(TEXT["hidden_size"] ** 0.5, mx.bfloat16).astype(mx.float32)
        seen = (self.multi_modal_projector(hidden) / scale).reshape(-1, TEXT["hidden_size"])
        places = (rows == soft).reshape(-1)
        order = mx.maximum(mx.cumsum(places.astype(mx.int32)) - 1, 0)
        width = TEXT["hidden_size"]
        filled = mx.where(places[:, None], seen[order], table(rows).reshape(-1, width))
        return self.language_model(rows, input_embeddings=filled.reshape(*rows.shape, width))


def patches_of(pictures):
    """Pictures (B, SIDE, SIDE, 3) of uint8 as patches (B, N, 3 * PATCH²) in [-1, 1]."""
    x = np.asarray(pictures, np.float32) / 127.5 - 1
    x = x.reshape(-1, GRID, PATCH, GRID, PATCH, 3).swapaxes(2, 3)
    return x.reshape(len(x), GRID**2, -1)


def config(tokenizer, ends):
    """What `config.json` holds."""
    names = ("boi_token_index", "image_token_index", "eoi_token_index")
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": TEXT | ends,
        "vision_config": EYES,
        "vocab_size": VOCABULARY,
        "mm_tokens_per_image": POSITIONS,
        **{name: tokenizer.token_to_id(mark) for name, mark in zip(names, MARKS, strict=True)},
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        **ends,
    }


def stored(parameters):
    """The weights as Hugging Face has them, without the heads that training alone has."""
    made = {}
    for name, array in parameters:
        if name.startswith("heads."):
            continue
        if name.endswith("patch_embedding.weight"):
            array = array.reshape(-1, PATCH, PATCH, 3).transpose(0, 3, 1, 2)
        made[name] = array
    return made
