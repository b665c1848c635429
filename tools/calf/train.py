#!/usr/bin/env python3
"""Train calf, the small chat model that ships with the library, from nothing but a seed.

    python tools/calf/train.py --out models/calf

The corpus comes from the grammar in `corpus`; nothing is downloaded.  Two worker processes
share every step, each on half of the batch, and average their gradients over mlx's ring, so the
outcome depends on the seed and the number of workers but not on the machine's number of cores.
Needs mlx, mlx-lm, tokenizers, numpy and jinja2; with scipy-openblas32 and a C compiler it is
many times faster on a CPU.
"""

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

VOCABULARY = 1280
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
WINDOW, LONG_WINDOW = 256, 1024
TOKENS_PER_STEP = 2048
LONG_EVERY = 16
PEAK_RATE, LAST_RATE, WARM_UP = 2.5e-3, 2e-5, 100
BETAS, WEIGHT_DECAY, CLIP_NORM = (0.9, 0.98), 0.1, 1.0


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="Train calf from a seed.")
    parser.add_argument("--out", type=Path, default=Path("models/calf"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1700)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def windows(tokenizer, stream, length, count):
    """Batches of `count` rows of `length` + 1 tokens packed with whole documents.

    Yields the rows and, for each token, whether it is trained.
    """
    import numpy as np

    from tools.calf.chat import PAD, render, targets

    pad, pool = tokenizer.token_to_id(PAD), []

    def take(room):
        """The first of the next few documents that fits into the room, or none."""
        if len(pool) < 64:
            texts = list(render(itertools.islice(stream, 256)))
            pool.extend(
                text.ids for text in tokenizer.encode_batch(texts, add_special_tokens=False)
            )
        fitting = (place for place, ids in enumerate(pool[:48]) if len(ids) <= room)
        place = next(fitting, None)
        return [] if place is None else pool.pop(place)

    while True:
        rows = np.full((count, length + 1), pad, dtype=np.int32)
        for row in rows:
            end = 0
            while ids := take(len(row) - end):
                row[end : end + len(ids)] = ids
                end += len(ids)
        yield rows, targets(tokenizer, rows.reshape(-1)).reshape(rows.shape)


def initial_model(llama, seed):
    """The network, an instance of mlx_lm's `llama`, with the weights that the seed gives it."""
    import mlx.core as mx

    mx.random.seed(seed)
    return llama.Model(llama.ModelArgs.from_dict(CONFIG))


def rates(steps, peak, last, warm_up=WARM_UP):
    """The rate of each step: it grows at first, then falls until the last of them."""
    import mlx.optimizers as optim

    warm = optim.linear_schedule(0.0, peak, warm_up)
    fall = optim.cosine_decay(peak, max(1, steps - warm_up), last)
    return optim.join_schedules([warm, fall], [warm_up])


def make_optimizer(steps, warm_up=WARM_UP, peak=PEAK_RATE):
    """What makes the steps."""
    import mlx.optimizers as optim

    rate = rates(steps, peak, LAST_RATE, warm_up)
    return optim.AdamW(rate, betas=BETAS, weight_decay=WEIGHT_DECAY, bias_correction=True)


def make_step(model, optimizer, cross_entropy):
    """The function that makes a step on rows and their trained tokens, and returns the loss."""

    def loss(rows, trained):
        losses = cross_entropy(model(rows[:, :-1]), rows[:, 1:])
        return (losses * trained[:, 1:]).sum() / trained[:, 1:].sum()

    return compiled_step(model, optimizer, loss)


def compiled_step(model, optimizer, loss):
    """The function that makes a step on numpy arrays that `loss` takes, and returns its value."""
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim

    state = [model.state, optimizer.state]

    def step(*batch):
        value, gradients = nn.value_and_grad(model, loss)(*batch)
        gradients = nn.average_gradients(gradients)
        gradients, _ = optim.clip_grad_norm(gradients, CLIP_NORM)
        optimizer.update(model, gradients)
        return value

    compiled = mx.compile(step, inputs=state, outputs=state)

    def evaluated(*batch):
        value = compiled(*map(mx.array, batch))
        mx.eval(value, state)
        return value.item()

    return evaluated


def train(options):
    """What each worker does; the first one writes the files."""
    from tools.calf.speedups import install, load_blas

    load_blas(tempfile.mkdtemp(dir=options.scratch))
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    from tools.calf.chat import BEGIN, END, PAD, render, tokenizer_config, train_tokenizer
    from tools.calf.corpus import documents

    cross_entropy = install(llama)
    ring = mx.distributed.init()
    rank, size = ring.rank(), ring.size()
    texts = render(itertools.islice(documents(options.seed), 10000))
    tokenizer = train_tokenizer(texts, VOCABULARY)

    model = initial_model(llama, options.seed)
    step = make_step(model, make_optimizer(options.steps), cross_entropy)
    stream = documents(f"{options.seed}/{rank}")
    share = TOKENS_PER_STEP // size
    short = windows(tokenizer, stream, WINDOW, share // WINDOW)
    long = windows(tokenizer, stream, LONG_WINDOW, share // LONG_WINDOW)
    start, mean = time.time(), None
    for number in range(1, options.steps + 1):
        rows, trained = next(long if number % LONG_EVERY == 0 else short)
        value = step(rows, trained.astype(np.float32))
        mean = value if mean is None else 0.98 * mean + 0.02 * value
        if rank == 0 and (number <= 5 or number % 50 == 0 or number == options.steps):
            speed = number * TOKENS_PER_STEP / (time.time() - start)
            now = f"step {number:5}  loss {value:.6f}  mean {mean:.4f}"
            print(f"{now}  {speed:6.0f} tokens/s", flush=True)
    if rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)
        weights = dict(tree_flatten(model.parameters()))
        mx.save_safetensors(str(options.out / "model.safetensors"), weights, {"format": "mlx"})
        tokenizer.save(str(options.out / "tokenizer.json"))
        names = {"bos": BEGIN, "eos": END, "pad": PAD}
        ends = {f"{name}_token_id": tokenizer.token_to_id(mark) for name, mark in names.items()}
        write_json(options.out / "config.json", CONFIG | ends)
        write_json(options.out / "generation_config.json", ends)
        write_json(options.out / "tokenizer_config.json", tokenizer_config())


def write_json(path, value):
    """Write a value as indented JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def free_ports(count):
    """Free ports of the loopback interface."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def run_workers(count):
    """Run this program in some processes that share mlx's ring; return the minutes it took.

    Each has the option --scratch with a separate folder.
    """
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        hosts = Path(scratch) / "hosts.json"
        write_json(hosts, [[f"127.0.0.1:{port}"] for port in free_ports(count)])
        ring = {} if count == 1 else {"MLX_HOSTFILE": str(hosts)}
        common = os.environ | ring | {"OPENBLAS_NUM_THREADS": "1"}
        workers = []
        for rank in range(count):
            folder = Path(scratch) / str(rank)
            folder.mkdir()
            own = {"MLX_RANK": str(rank), "TMPDIR": str(folder)}
            command = [sys.executable, *sys.argv, "--scratch", str(folder)]
            workers.append(subprocess.Popen(command, env=common | own))
        codes = [worker.wait() for worker in workers]
        if any(codes):
            sys.exit("a worker failed")
    minutes = (time.time() - start) / 60
    print(f"trained in {minutes:.1f} minutes")
    return minutes


def main():
    """Start the workers, wait for them and write the model card."""
    options = arguments()
    if options.scratch:
        train(options)
        return
    minutes = run_workers(options.workers)
    from tools.calf.card import write_card

    facts = {"seed": options.seed, "steps": options.steps, "workers": options.workers}
    sizes = {"batch": TOKENS_PER_STEP, "window": LONG_WINDOW}
    write_card(options.out, {**facts, **sizes, "minutes": minutes})


if __name__ == "__main__":
    main()
