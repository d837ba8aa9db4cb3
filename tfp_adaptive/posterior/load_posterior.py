"""`load_posterior`: reads the file of `Posterior.save`, given the model."""

from collections.abc import Mapping

from tfp_adaptive.driver import calling
from tfp_adaptive.interfaces import types
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.model import data as data_lib
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.sample_posterior import problem_of


def load_posterior(
  path: types.Path,
  model: types.Model,
  *,
  data: Mapping[str, types.Structure] | None = None,
  init: types.Structure = None,
  bijectors: types.Structure = None,
  **pins: types.Structure,
) -> Posterior:
  """Returns a posterior that was saved; nothing is drawn.

  The file holds draws, report and the learned sampler, but no code. Give the
  model again, as to `sample_posterior`. The verdict is computed again.

  Args:
    path: The file that `Posterior.save` wrote, or `posterior.npz` in the
      `checkpoint_dir` of a call, which holds the draws of that call so far.
    model: The same joint distribution or log density.
    data: The same observed values, as in `sample_posterior`.
    init: For a density: the same structure. Starts are not used.
    bijectors: For a density: the same bijectors.
    **pins: The same observed values of a joint distribution.

  Returns:
    A `Posterior`. Its `more` continues the saved chains.

  Warns:
    UserWarning: If the program or the Python code of the model has changed
      since it was saved, but log density and gradient agree at the chains'
      states.

  Raises:
    FileNotFoundError: If there is no such file.
    ValueError: If the file is damaged, or belongs to another model, other data
      or another version.

  Example:
    target = tfp.distributions.Sample(tfp.distributions.Normal(0.0, 1.0), 3)
    init = tf.TensorSpec([3])
    tfpa.sample_posterior(target.log_prob, init=init).save('run.npz')
    posterior = tfpa.load_posterior('run.npz', target.log_prob, init=init)
  """
  calling.check('tfpa.load_posterior')
  header, arrays = saved.read(path)
  num_chains = arrays['draws'].shape[1]
  problem = problem_of(
    model, init, bijectors, num_chains, data_lib.joined(data, pins)
  )
  chains = saved.restore(path, header, arrays, problem, may_differ=True)
  report = [Stage(*stage) for stage in header['report']]
  return Posterior(
    problem, chains, report, header['min_ess'], header['ended_by']
  )
