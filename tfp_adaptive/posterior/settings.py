"""The arguments of a run of `sample_posterior`."""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.driver import progress


class Settings(NamedTuple):
  """Arguments of `sample_posterior`, checked and converted."""

  num_draws: int
  num_chains: int
  seed: tf.Tensor
  min_ess: float
  max_gradients: float
  max_seconds: float
  jit_compile: bool | None
  reports: progress.Reports
  checkpoint_dir: str | None
  dtype: tf.DType | None = None  # Dtype of the computation.

  def identity(self):
    """Returns JSON values that must be equal for a call to resume a run."""
    return dict(
      num_draws=self.num_draws,
      num_chains=self.num_chains,
      seed=[int(word) for word in self.seed],
      min_ess=self.min_ess,
      jit_compile=self.jit_compile,
      dtype=self.dtype and tf.as_dtype(self.dtype).name,
    )
