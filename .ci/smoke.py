"""Smoke test of an installed wheel: run it from an empty folder.

It imports the library, samples a small posterior, and runs one kernel in
`tfp.mcmc.sample_chain`. It needs nothing of the checkout.
"""

import importlib.metadata
import importlib.resources
import pathlib
import platform

import tfp_adaptive as tfpa

# isort: split
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

tfd = tfp.distributions


def _is_installed():
  """Checks the files of the package and its public names."""
  files = importlib.resources.files('tfp_adaptive')
  assert 'site-packages' in pathlib.Path(str(files)).parts, files
  assert files.joinpath('py.typed').is_file()
  missing = [name for name in tfpa.__all__ if not hasattr(tfpa, name)]
  assert not missing, missing
  version = importlib.metadata.version('tfp_adaptive')
  assert version == tfpa.__version__, (version, tfpa.__version__)


def _samples_a_posterior():
  """Compares a posterior mean with its closed form, 8 / (4 + 1)."""
  model = tfd.JointDistributionNamedAutoBatched(
    {
      'mean': tfd.Normal(0.0, 1.0),
      'seen': lambda mean: tfd.Sample(tfd.Normal(mean, 1.0), 4),
    }
  )
  posterior = tfpa.sample_posterior(
    model, seen=[1.0, 2.0, 2.0, 3.0], seed=1, progress=False
  )
  print(posterior)
  assert posterior.converged, posterior
  mean = float(posterior.draws.posterior['mean'].mean())
  # 400 effective draws give a standard error of 0.45 / 20.
  assert abs(mean - 8 / 5) < 5 * 0.45 / 20, mean


def _runs_in_tfp():
  """Runs MALA that adapts, by TFP's own driver."""
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1), num_adaptation_steps=500
  )

  @tf.function
  def run():
    return tfp.mcmc.sample_chain(
      500,
      tf.zeros([8, 2]),
      kernel=kernel,
      num_burnin_steps=500,
      trace_fn=lambda _, results: tfpa.sample_stats(kernel, results),
      seed=(0, 1),
    )

  states, _ = run()
  assert states.shape == (500, 8, 2), states.shape
  spread = np.std(states.numpy(), axis=(0, 1))
  assert np.all(np.abs(spread - 1) < 0.2), spread


_is_installed()
_samples_a_posterior()
_runs_in_tfp()
packages = ['tfp_adaptive', 'tensorflow', 'tf_keras', 'numpy', 'scipy']
print(
  'Works: Python',
  platform.python_version(),
  *(f'{name} {importlib.metadata.version(name)}' for name in packages),
)
