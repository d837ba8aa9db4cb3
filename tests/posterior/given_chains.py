"""Chains whose draws are given: nothing is sampled."""

import types


def given(draws, most_diverging=0.005, **trace):
  """Returns what a `Posterior` takes for chains of draws [draws, chains, d]."""
  return types.SimpleNamespace(
    num_kept=len(draws),
    num_blocks=0,
    draws=draws,
    trace=trace,
    thinning=1,
    steps_per_draw=1,
    choice=types.SimpleNamespace(name='dense matrix'),
    failures=[],
    is_noisy=False,
    is_settled=True,
    most_diverging=most_diverging,
  )
