"""The only place that touches private modules of TFP and TF.

A release that moves these modules breaks only this file.
"""

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.eager import context
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.framework import func_graph
from tensorflow.python.framework import ops
from tensorflow.python.ops.parallel_for import pfor
from tensorflow_probability.python.distributions import joint_distribution
from tensorflow_probability.python.experimental.distributions import (
  joint_distribution_pinned,
)
from tensorflow_probability.python.internal import distribute_lib
from tensorflow_probability.python.internal import nest_util
from tensorflow_probability.python.internal import prefer_static
from tensorflow_probability.python.internal import unnest
from tensorflow_probability.python.mcmc.internal import util as mcmc_util
from tensorflow_probability.python.mcmc.kernel import TransitionKernel
from tensorflow_probability.python.mcmc.metropolis_hastings import (
  MetropolisHastingsKernelResults,
)

__all__ = [
  'MetropolisHastingsKernelResults',
  'TransitionKernel',
  'by_name',
  'call_fn',
  'choose',
  'find_innermost',
  'distributions_of_parts',
  'forget_bijections',
  'get_innermost',
  'has_started',
  'in_structure',
  'inlined',
  'inner_graphs',
  'joint_bijector',
  'number_names_from_multiple',
  'own_gradient',
  'pfor',
  'prefer_static',
  'psum',
  'get_axis_index',
  'replace_innermost',
  'safe_sum',
]

call_fn = nest_util.call_fn
choose = mcmc_util.choose
get_axis_index = distribute_lib.get_axis_index
get_innermost = unnest.get_innermost
psum = distribute_lib.psum
replace_innermost = unnest.replace_innermost
safe_sum = mcmc_util.safe_sum


def find_innermost(results, name):
  """Returns the innermost field called `name`, or `None` if there is none.

  Also returns `None` if reading a field of TFP's results raises an error.
  """
  try:
    return get_innermost(results, name, default=None)
  except (TypeError, ValueError):
    return None


def forget_bijections(graph):
  """Removes from TFP's cache what bijectors computed inside a graph.

  TFP never removes an entry with a log determinant, because the entry keeps its
  graph alive.
  """
  storage = tfp.bijectors.Bijector._cache.storage
  for key in list(storage):
    tensors = tf.nest.flatten(key())
    if any(
      tf.is_symbolic_tensor(t) and _is_inside(t.graph, graph) for t in tensors
    ):
      key.cancel()
      storage.pop(key, None)


def _is_inside(inner, graph):
  while inner is not graph and isinstance(inner, func_graph.FuncGraph):
    inner = inner.outer_graph
  return inner is graph


def joint_bijector(model):
  """Returns the class of the map onto the support of a joint distribution.

  TFP's public method would build all bijectors of the map first.
  """
  is_pinned = isinstance(
    model, joint_distribution_pinned.JointDistributionPinned
  )
  if not model.use_vectorized_map:
    return joint_distribution._DefaultJointBijector
  if is_pinned:
    return joint_distribution_pinned._DefaultJointBijectorAutoBatchedWithPins
  return joint_distribution._DefaultJointBijectorAutoBatched


def distributions_of_parts(model):
  """Returns the distributions of a joint distribution's parts, at one draw.

  Pinned parts are left out. In TFP's `AutoBatched` models, the batch dimensions
  of a part may count as event dimensions.
  """
  return model._get_single_sample_distributions()


def in_structure(model, parts):
  """Returns flat values of the unpinned parts in the structure of the model."""
  return model._model_unflatten(parts)


def has_started():
  """Returns whether TF is initialized, and so has read all its flags."""
  return context.context()._initialized


def inlined(concrete):
  """Returns a concrete function without function calls or variables.

  Calls are inlined and variables become constants of their present values.
  Loops and branches stay as they are.
  """
  return convert_to_constants.convert_variables_to_constants_v2(
    concrete, lower_control_flow=False
  )


def by_name(model, values):
  """Returns values of some parts in the structure of a joint distribution.

  The result is the argument `value` of `sample` and `sample_distributions`,
  with `None` for the other parts. If parts were passed by keyword, the names
  `seed` and `name` would clash.
  """
  names = model._flat_resolve_names()
  return model._model_unflatten([values.get(name) for name in names])


def number_names_from_multiple(number):
  """Moves TF's counter for names to the next multiple of `number`."""
  while ops.uid() % number:
    pass


_INNER_GRAPHS = ('_cond_graph', '_body_graph', '_true_graph', '_false_graph')


def inner_graphs(op):
  """Returns the graphs of a loop or of the branches of a conditional."""
  cases = len(op.get_attr('branches')) if op.type.endswith('Case') else 0
  names = (*_INNER_GRAPHS, *(f'_branch_graph_{i}' for i in range(cases)))
  graphs = (getattr(op, name, None) for name in names)
  return [graph for graph in graphs if graph is not None]


def own_gradient(op):
  """Moves a custom gradient from TF's registry to the operation itself."""
  try:
    name = tf.compat.as_str(op.get_attr('_gradient_op_type'))
  except ValueError:  # TF finds the gradient by the type of the operation.
    return
  if name.startswith('CustomGradient-'):  # Other entries may be shared.
    entry = ops.gradient_registry._registry.pop(name, None)
    if entry is not None:
      op._gradient_function = entry['type']
