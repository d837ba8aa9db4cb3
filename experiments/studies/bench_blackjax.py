"""mGrad against BlackJAX's `mgrad_gaussian`: heart, ten chains, one core.

  python -m experiments.studies.bench_blackjax PYTHON [--data-dir DIR]

PYTHON is the interpreter of an environment with BlackJAX on CPU, which this
library never needs. Both sample the same posterior in float32, in turns, one
at a time; this side tunes delta by itself, the other is given the same
acceptance. Times are CPU time of the sampling alone, so that other programs on
the machine count little; pin both to one core with `taskset -c 0`.
"""

import argparse
import pathlib
import subprocess
import tempfile
import time

import numpy as np

import tfp_adaptive as tfpa
from experiments.data import datasets
from experiments.framework import diagnostics
from experiments.targets import gp_classification
from experiments.targets import latent

__all__ = ['measure']

_DTYPE = 'float32'
_NUM_CHAINS = 10
_NUM_ADAPTATION_STEPS = 1000


def measure(python, data_dir=None, num_repeats=5, num_results=5000):
  """Yields a dict of numbers for each pair of runs.

  Args:
    python: interpreter that has BlackJAX.
    data_dir: folder with a local copy of heart.
    num_repeats: pairs of runs.
    num_results: draws of every chain.
  """
  inputs, labels = datasets.load('heart', data_dir)
  covariance = latent.squared_exponential(
    gp_classification.standardized(inputs), 5.83, 14.14
  )
  run, accept_rate = _own_sampler(covariance, labels, num_results)
  with tempfile.TemporaryDirectory() as folder:
    problem = pathlib.Path(folder) / 'problem.npz'
    output = pathlib.Path(folder) / 'output.npz'
    np.savez(
      problem,
      covariance=covariance.astype(_DTYPE),
      labels=labels,
      accept_rate=accept_rate,
      num_chains=_NUM_CHAINS,
      num_results=num_results,
    )
    script = pathlib.Path(__file__).with_name('blackjax_side.py')
    other = subprocess.Popen(
      [python, str(script), str(problem), str(output)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    with other:
      _wait_for(other, 'ready')
      for repeat in range(num_repeats):
        own = run(repeat)
        other.stdin.write('\n')
        other.stdin.flush()
        _wait_for(other, 'done')
        with np.load(output) as arrays:
          theirs = _summary(**arrays)
        yield {'own': own, 'blackjax': theirs}
      other.stdin.close()


def _own_sampler(covariance, labels, num_results):
  """Returns (repeat -> summary of a run without adaptation, acceptance)."""
  target = gp_classification.gp_classification_target(
    'heart', covariance, labels, _DTYPE
  )
  kernel = tfpa.marginal_gradient(
    target.latent.log_likelihood_fn,
    target.latent.prior,
    num_adaptation_steps=_NUM_ADAPTATION_STEPS,
  )
  start = np.zeros([_NUM_CHAINS, target.event_size], _DTYPE)
  first = tfpa.sample(kernel, start, num_results, seed=(0, 0), progress=False)
  fixed = tfpa.frozen(kernel, first.final_kernel_results)

  def run(repeat):
    begin = time.process_time()
    result = tfpa.sample(
      fixed, first.final_state, num_results, seed=(repeat, 1), progress=False
    )
    return _summary(
      result.states,
      time.process_time() - begin,
      np.mean(result.trace['is_accepted']),
    )

  run(2**20)  # Compiles.
  return run, float(np.mean(first.trace['is_accepted']))


def _summary(states, seconds, accept_rate, delta=None):
  del delta
  ess = diagnostics.geyer_ess(states).sum(axis=0)
  return {
    'min_ess': float(ess.min()),
    'median_ess': float(np.median(ess)),
    'seconds': float(seconds),
    'accept_rate': float(accept_rate),
  }


def _wait_for(process, word):
  line = process.stdout.readline().strip()
  if line != word:
    raise RuntimeError(
      f'the BlackJAX side said {line!r} instead of {word!r}; run '
      'experiments/studies/blackjax_side.py by hand to see why.'
    )


def _main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('python', help='interpreter that has BlackJAX')
  parser.add_argument('--data-dir')
  parser.add_argument('--num-repeats', type=int, default=5)
  given = parser.parse_args()
  ratios = []
  for pair in measure(given.python, given.data_dir, given.num_repeats):
    for side, numbers in pair.items():
      print(side, {key: round(value, 3) for key, value in numbers.items()})
    ratios.append(
      [
        (pair['own'][key] / pair['own']['seconds'])
        / (pair['blackjax'][key] / pair['blackjax']['seconds'])
        for key in ('min_ess', 'median_ess')
      ]
    )
  smallest, median = np.median(ratios, axis=0)
  print(f'ESS/s over BlackJAX: smallest {smallest:.2f}, median {median:.2f}')


if __name__ == '__main__':
  _main()
