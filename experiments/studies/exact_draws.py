"""How the panel would judge exact draws of Neal's funnel.

  python -m experiments.studies.exact_draws

Independent draws, as many as a run records: what they miss no sampler can be
blamed for. The narrow coordinates are N(0, e^v), v ~ N(0, 9): their fourth
moment is some 1e4 times the square of the second, and the standard error of
their deviation that draws suggest is too small as a rule. Tails tell of which
moments: the worst error of the others is recorded, too.
"""

import argparse
import json
import pathlib

import numpy as np

from experiments.studies.panel import accuracy
from experiments.studies.panel.truth import Truth
from tfp_adaptive.posterior import tails

__all__ = ['worst_scores']

_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / 'docs'
  / 'results'
  / 'geometry'
  / 'exact_draws.json'
)
_EVENT_SIZE, _DEVIATION = 10, 3.0


def worst_scores(num_seeds=100, num_draws=4166, num_chains=8):
  """Returns the worst z of each seed's draws, [seeds, 2].

  Of all moments, and of those whose own error the tails tell.
  """
  deviation = np.full(_EVENT_SIZE, np.exp(0.25 * _DEVIATION**2))
  deviation[0] = _DEVIATION
  zeros = np.zeros(_EVENT_SIZE)
  truth = Truth(zeros, deviation, zeros, deviation**2, zeros, 'exact', 'exact')
  scores = []
  for seed in range(num_seeds):
    rng = np.random.default_rng(seed)
    shape = (num_draws, num_chains, 1)
    neck = _DEVIATION * rng.normal(size=shape)
    rest = rng.normal(size=(*shape[:-1], _EVENT_SIZE - 1))
    draws = np.concatenate([neck, np.exp(0.5 * neck) * rest], axis=-1)
    sizes = np.full(_EVENT_SIZE, float(num_draws * num_chains))
    vouched = ~tails.of_draws(draws, sizes).is_heavy
    scores.append(
      [accuracy.worst_z(draws, truth, c).worst for c in (None, vouched)]
    )
  return np.asarray(scores)


def main():
  """Writes the record."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  output = parser.parse_args().output
  scores = worst_scores()
  shares = np.mean(np.abs(scores) > 4.0, axis=0)
  record = {
    'target': 'NealsFunnel',
    'num_seeds': len(scores),
    'share_beyond_4': float(shares[0]),
    'share_vouched_beyond_4': float(shares[1]),
    'worst_z': scores[:, 0].round(3).tolist(),
    'worst_z_vouched': scores[:, 1].round(3).tolist(),
  }
  output.parent.mkdir(parents=True, exist_ok=True)
  output.write_text(json.dumps(record, indent=1) + '\n')
  print('{:.0%} beyond 4, {:.0%} of moments vouched for'.format(*shares))


if __name__ == '__main__':
  main()
