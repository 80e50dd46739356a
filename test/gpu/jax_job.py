# SPDX-License-Identifier: Apache-2.0
"""A JAX training job with fixed seeds: an MLP with Adam, jitted: python jax_job.py [WIDTH LAYERS BATCH STEPS]. How JAX takes
its memory is set by its environment."""
import os
import sys

# Autotuning may choose another kernel in another run, and with it other bits.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"

import jax
import jax.numpy as jnp

width, layers, batch, steps = map(int, sys.argv[1:] or (3072, 5, 1024, 15))
key = jax.random.PRNGKey(0)
keys = jax.random.split(key, layers + 2)
weights = [jax.random.normal(k, (width, width)) * (2.0 / width) ** 0.5 for k in keys[:layers]]
x = jax.random.normal(keys[-2], (batch, width))
y = jax.random.randint(keys[-1], (batch,), 0, width)


def loss_of(weights):
    h = x
    for w in weights[:-1]:
        h = jax.nn.relu(h @ w)
    return -jnp.take_along_axis(jax.nn.log_softmax(h @ weights[-1]), y[:, None], axis=1).mean()


@jax.jit
def step(weights, first, second, i):
    loss, gradient = jax.value_and_grad(loss_of)(weights)
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradient)]
    second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradient)]
    correct = jnp.sqrt(1 - 0.999**i) / (1 - 0.9**i)
    weights = [w - 1e-4 * correct * m / (jnp.sqrt(v) + 1e-8) for w, m, v in zip(weights, first, second)]
    return weights, first, second, loss


first = [jnp.zeros_like(w) for w in weights]
second = [jnp.zeros_like(w) for w in weights]
for i in range(1, steps + 1):
    weights, first, second, loss = step(weights, first, second, float(i))
    print(f"check loss{i} {float(loss):.9g}", flush=True)
print(f"check weights {float(sum(jnp.abs(w).sum() for w in weights)):.9g}")
# What JAX's pool took from the driver; the key depends on the kind of pool.
stats = jax.devices()[0].memory_stats()
print(f"need {max(stats.get('peak_pool_bytes') or 0, stats.get('peak_bytes_in_use') or 0)}")
