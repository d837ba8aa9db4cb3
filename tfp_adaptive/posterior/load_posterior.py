"""load_posterior(): what `Posterior.save` wrote, with its model again."""

import pathlib

import numpy as np
import tensorflow as tf

from tfp_adaptive._version import __version__
from tfp_adaptive.driver import archive
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior.posterior import KIND
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.sample_posterior import problem_of

__all__ = ['load_posterior']

_TOLERANCE = {tf.float32: 1e-3, tf.float64: 1e-6}  # Of log densities.


def load_posterior(path, model, *, init=None, bijectors=None, **pins):
  """Returns a posterior that was saved; nothing is drawn.

  A file holds draws, verdict, and the sampler with what it learned, but no
  code: the model is given again, as to `sample_posterior`.

  Args:
    path: Of the file that `Posterior.save` wrote.
    model: The same joint distribution or log density.
    init: Of a density: the same structure; starts are not used.
    bijectors: Of a density: the same.
    **pins: The same observed values of a joint distribution.

  Returns:
    A `Posterior`, whose `more` goes on as that which was saved.

  Raises:
    FileNotFoundError: If there is no such file.
    ValueError: If the file is damaged, or of another model, data or version.
  """
  path = pathlib.Path(path)
  try:
    header, arrays = archive.unseal(path)
  except archive.Damaged as error:
    if not path.exists():
      raise FileNotFoundError(f'There is no file {path}.') from error
    raise ValueError(f'{path} is damaged: {error}.') from error
  if header.get('kind') != KIND:
    raise ValueError(
      f'{path} holds no posterior. Pass a file that `Posterior.save` wrote.'
    )
  num_chains = arrays['draws'].shape[1]
  problem = problem_of(model, init, bijectors, num_chains, pins)
  _check_names(path, header, problem)
  try:
    chains = chains_lib.restore(
      problem.target_log_prob_fn, header['chains'], arrays, False
    )
  except (KeyError, ValueError) as error:
    raise ValueError(
      f'{path} was saved by version {header["version"]}, whose kernels are not '
      f'those of {__version__}: load it with that version.'
    ) from error
  _check_density(path, problem, chains)
  report = [Stage(*stage) for stage in header['report']]
  return Posterior(
    problem, chains, report, header['min_ess'], header['ended_by']
  )


def _check_names(path, header, problem):
  """Refuses a model of other unknowns."""
  saved = header['coordinates'], header['dtype']
  given = list(problem.coordinates), problem.dtype.name
  if saved != given:
    (names, dtype), (others, other) = saved, given
    raise ValueError(
      f'{path} is of another model: it has {len(names)} coordinates '
      f'({", ".join(names[:4])}, {dtype}), the model given '
      f'{len(others)} ({", ".join(others[:4])}, {other}).'
    )


def _check_density(path, problem, chains):
  """Refuses a model that has another density where the chains are."""
  saved = chains.trace['target_log_prob'][-1]
  given = problem.target_log_prob_fn(chains.state).numpy()
  bound = _TOLERANCE[problem.dtype] * (1.0 + np.abs(saved))
  if not np.all(np.abs(given - saved) <= bound):
    raise ValueError(
      f'{path} is of another model or other data: where its first chain is, '
      f'the log density was {saved[0]:.6g}, and that of the model given is '
      f'{given[0]:.6g}. Pass the model and data of then.'
    )
