"""The base class of all kernels.

`tfpa.frozen`, costs, warnings and traces call these methods of each nested
kernel. No other module has to know a new kernel.
"""

from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.core import tfp_private
from tfp_adaptive.interfaces.families import Cost


class StepKind(NamedTuple):
  """The kind of a step, for `cost_at`."""

  is_adapting: bool
  is_replayed: bool = False  # Whether an outer adaptation replays the proposal.
  # Cost that outer adaptations add to that of the replay.
  beside: Cost = Cost(matrix_product=0)
  # Mean number of leapfrog steps of adapting steps, if an outer adaptation has
  # counted them.
  mean_num_steps: float | None = None


class Kernel(tfp_private.TransitionKernel):
  """Base of the kernels; `_parameters` are the constructor's arguments.

  In all methods, `results` are this kernel's own results, and `state` is the
  state of the chains in this kernel's own space.
  """

  # Whether `target_log_prob` of the results is the likelihood alone.
  has_prior_apart = False
  # Whether a step starts with momenta of the step before.
  keeps_momentum = False

  def __repr__(self):
    return shown.kernel(self)

  def _keep(self, values: dict[str, Any]) -> None:
    """Keeps the constructor's arguments, given as its `locals()`.

    TFP rebuilds a kernel from them.
    """
    self._parameters = {
      name: value
      for name, value in values.items()
      if name not in ('self', '__class__')
    }

  @property
  def parameters(self):
    return self._parameters

  @property
  def name(self):
    return self._parameters['name'] or type(self).__name__

  def frozen_at(self, results: Any) -> tfp_private.TransitionKernel:
    """Returns a kernel with the learned values, which no longer adapts."""
    return self.copy(**self.learned_at(results))

  def learned_at(self, results: Any) -> dict[str, Any]:
    """Returns the learned arguments of the constructor, by name."""
    del results
    raise nothing_learned(self)

  def operator_at(self, results: Any) -> tf.linalg.LinearOperator:
    """Returns the learned scale factor C, without the step size."""
    del results
    raise ValueError(
      f'{type(self).__name__} does not move by a single matrix C, so no '
      'matrix can be returned. Use `tfpa.frozen(kernel, results)`.'
    )

  @property
  def fit_steps(self) -> tuple[int, ...]:
    """Steps after which `fitted_at` is due, between two blocks of steps."""
    return ()

  @property
  def fit_code(self) -> Any:
    """The functions that `fitted_at` calls, a part of the identity of a run."""
    return None

  def fitted_at(self, state: Any, results: Any) -> Any:
    """Returns the results after a fit on the host."""
    del state
    return results

  def scalars_at(self, results: Any) -> dict[str, tf.Tensor]:
    """Returns [] Tensors by name that describe the adaptation."""
    del results
    return {}

  def warnings_before(self, state: Any, results: Any) -> Iterator[str]:
    """Yields warnings for the user before the first step."""
    del state, results
    return iter(())

  def warnings_after(
    self, results: Any, trace: dict[str, np.ndarray]
  ) -> Iterator[str]:
    """Yields warnings about a run from its last results and recorded arrays.

    `tfpa.sample` shows them. `sample_posterior` does not, because its verdict
    judges the draws. Add what its users must know to `Chains.failures`.
    """
    del results, trace
    return iter(())

  def cost(self, adapting: bool) -> Cost | None:
    """Returns the cost of a step for one chain, with a replay if `adapting`."""
    del adapting
    return None

  def cost_at(self, results: Any, kind: StepKind) -> Cost | None:
    """Returns `cost` with the costs that outer adaptations add.

    `results` is `None` if there are none yet.
    """
    del results
    own = self.cost(kind.is_replayed)
    return None if own is None else own.plus(kind.beside)


def nothing_learned(kernel: tfp_private.TransitionKernel) -> ValueError:
  """Returns the error of a kernel that has learned nothing."""
  return ValueError(
    f'{type(kernel).__name__} has learned nothing that can be frozen: no '
    'kernel inside has a preconditioner. Pass a kernel built by a `tfpa` '
    'builder, with the results of the same kernel.'
  )


class Wrapper(Kernel):
  """Base of the kernels that wrap an `inner_kernel`."""

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
