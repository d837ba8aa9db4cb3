"""What all kernels share, and what all wrappers do."""

from tfp_adaptive.core import tfp_private

__all__ = ['Kernel', 'Wrapper']


class Kernel(tfp_private.TransitionKernel):
  """Base of the kernels, which set `_parameters`: those of the constructor."""

  @property
  def parameters(self):
    return self._parameters

  @property
  def name(self):
    return self._parameters['name'] or type(self).__name__


class Wrapper(Kernel):
  """Base of the kernels around an `inner_kernel`, one of their parameters."""

  @property
  def inner_kernel(self):
    return self._parameters['inner_kernel']

  @property
  def is_calibrated(self):
    return self.inner_kernel.is_calibrated

  @property
  def experimental_shard_axis_names(self):
    return self.inner_kernel.experimental_shard_axis_names

  def experimental_with_shard_axes(self, shard_axis_names):
    return self.copy(
      inner_kernel=self.inner_kernel.experimental_with_shard_axes(
        shard_axis_names
      )
    )
