"""load_posterior(): what `Posterior.save` wrote, with its model again."""

from tfp_adaptive.driver import calling
from tfp_adaptive.interfaces import types
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.sample_posterior import problem_of

__all__ = ['load_posterior']


def load_posterior(
  path: types.Path,
  model: types.Model,
  *,
  init: types.Structure = None,
  bijectors: types.Structure = None,
  **pins: types.Structure,
) -> Posterior:
  """Returns a posterior that was saved; nothing is drawn.

  A file holds draws, verdict, and the sampler with what it learned, but no
  code: the model is given again, as to `sample_posterior`.

  Args:
    path: Of the file that `Posterior.save` wrote, or `posterior.npz` in the
      `checkpoint_dir` of a call, its draws so far.
    model: The same joint distribution or log density.
    init: Of a density: the same structure; starts are not used.
    bijectors: Of a density: the same.
    **pins: The same observed values of a joint distribution.

  Returns:
    A `Posterior`, whose `more` goes on as that which was saved.

  Raises:
    FileNotFoundError: If there is no such file.
    ValueError: If the file is damaged, or of another model, data or version.

  Example:
    target = tfp.distributions.Sample(tfp.distributions.Normal(0.0, 1.0), 3)
    init = tf.TensorSpec([3])
    tfpa.sample_posterior(target.log_prob, init=init).save('run.npz')
    posterior = tfpa.load_posterior('run.npz', target.log_prob, init=init)
  """
  calling.check('tfpa.load_posterior')
  header, arrays = saved.read(path)
  num_chains = arrays['draws'].shape[1]
  problem = problem_of(model, init, bijectors, num_chains, pins)
  chains = saved.restore(path, header, arrays, problem)
  report = [Stage(*stage) for stage in header['report']]
  return Posterior(
    problem, chains, report, header['min_ess'], header['ended_by']
  )
