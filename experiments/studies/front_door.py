"""sample_posterior on the panel's targets: what it chose, and was it right.

  python -m experiments.studies.front_door

One call for each target and seed, with nothing but the density, and the panel's
budget of gradients, warm-up included. Its own verdict is compared with the
panel's gates and with the truth. Records that the file has are not run again.

  python -m experiments.studies.front_door --num-seeds 2 \\
    --panel configs/inference_gym/full_path.yaml \\
    --output docs/results/front_door/full_path.jsonl

the same where the full S&P path has ten times the gradients.
"""

import argparse
import os
import pathlib
import time
import warnings

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework import diagnostics
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.run import machine
from experiments.studies.panel import accuracy
from experiments.studies.panel import truth as truth_lib
from experiments.studies.panel.config import load_panel
from tfp_adaptive.driver import convergence
from tfp_adaptive.posterior import tails

__all__ = ['run']

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PANEL = _ROOT / 'configs' / 'inference_gym' / 'panel.yaml'
_OUTPUT = _ROOT / 'docs' / 'results' / 'front_door' / 'runs.jsonl'


def run(panel, index, target, truth, seed):
  """Returns the record of one call.

  Args:
    panel: The `Panel`.
    index: Of the target in it.
    target: The `Target`.
    truth: Its `Truth`, or `None`.
    seed: Int.
  """
  begin = time.monotonic()
  posterior = tfpa.sample_posterior(
    target.target_log_prob_fn,
    seed=seed,
    num_chains=panel.config.num_chains,
    init=tf.TensorSpec([target.event_size], target.dtype),
    max_gradients=panel.budget(index).gradients_per_chain,
    jit_compile=panel.is_jit_compiled(index),
    progress=False,
  )
  seconds = time.monotonic() - begin
  summary = diagnostics.summarize(posterior.unconstrained)
  sizes = {
    name: float(np.nanmin(getattr(summary, name)))
    for name in ('ess', 'ess_squared', 'ess_bulk', 'ess_tail')
  }
  rhat = float(np.nanmax(summary.rhat))
  gates = panel.gates
  return {
    'target': panel.config.target_label(index),
    'seed': seed,
    'event_size': target.event_size,
    'converged': posterior.converged,
    'failed': posterior.failed,
    'passes_gates': rhat < gates.max_rhat
    and min(sizes.values()) >= gates.min_ess,
    **_errors(target, truth, posterior.unconstrained),
    'rhat': rhat,
    **sizes,
    'doubts': posterior.verdict.doubts,
    'share_diverging': posterior.verdict.share_diverging,
    'choice': posterior.choice,
    'num_gradients': posterior.num_gradients,
    'max_gradients': panel.budget(index).gradients_per_chain,
    'seconds': seconds,
    'compilations_cached': 'persistent_cache'
    in os.environ.get('TF_XLA_FLAGS', ''),
    'report': [stage._asdict() for stage in posterior.report],
    'version': tfpa.__version__,
    'commit': machine.commit(),
  }


def _errors(target, truth, states):
  """Returns the worst error in standard errors, of all moments and of some.

  Those whose own error the tails tell, as the verdict has it, here of the
  model's own coordinates. None without a truth, or where there are none.
  """
  if truth is None or not truth.is_converged:
    return {'z': None, 'z_vouched': None}
  draws = truth_lib.coordinates(target, states)
  heavy = tails.of_draws(draws, convergence.diagnose(draws).ess_tail)
  counts = ~heavy.is_heavy
  vouched = accuracy.worst_z(draws, truth, counts) if counts.any() else None
  return {
    'z': accuracy.worst_z(draws, truth).worst,
    'z_vouched': vouched and vouched.worst,
    'num_moments': counts.size,
    'num_vouched': int(counts.sum()),
    'largest_k': [float(np.nanmax(k)) for k in (heavy.value, heavy.square)],
  }


def main():
  """Appends the records that the file lacks."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--panel', type=pathlib.Path, default=_PANEL)
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  parser.add_argument('--data-dir', type=pathlib.Path)
  parser.add_argument('--num-seeds', type=int, default=10)
  parser.add_argument('--first-seed', type=int, default=0)
  parser.add_argument('--only-target', action='append')
  parser.add_argument(
    '--cache-dir',
    type=pathlib.Path,
    help='keep compiled programs there: other seeds take fewer seconds',
  )
  options = parser.parse_args()
  if options.panel != _PANEL and options.output == _OUTPUT:
    parser.error('records of another panel need an `--output` of their own')
  if options.cache_dir:
    tfpa.cache_compilations(options.cache_dir)
  warnings.simplefilter('ignore', UserWarning)
  panel = load_panel(options.panel)
  done = {(row['target'], row['seed']) for row in read_lines(options.output)}
  seeds = range(options.first_seed, options.first_seed + options.num_seeds)
  # Seed by seed: a part of the records is all targets.
  for seed in seeds:
    for index in range(len(panel.config.targets)):
      label = panel.config.target_label(index)
      is_wanted = not options.only_target or label in options.only_target
      if not is_wanted or (label, seed) in done:
        continue
      target, truth = panel.problem(label, options.data_dir)
      record = run(panel, index, target, truth, seed)
      append_lines(options.output, record)
      print(_line(record), flush=True)


def _line(record):
  word = 'converged' if record['converged'] else 'not converged'
  gates = 'pass' if record['passes_gates'] else 'missed'
  z, vouched = (
    'unknown' if record[name] is None else f'{record[name]:.1f}'
    for name in ('z', 'z_vouched')
  )
  return (
    f'{record["target"]} | seed {record["seed"]}: {word}, gates {gates}, '
    f'z {z}, vouched for {vouched}, {record["choice"]}, '
    f'{record["num_gradients"]:.0f} gradients, {record["seconds"]:.0f} s'
  )


if __name__ == '__main__':
  main()
