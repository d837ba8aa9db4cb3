"""The only place that touches TFP's private modules.

TFP keeps the rules that every kernel must share (how a target is called with a
structure, how chains are selected, how shards are reduced) in modules without a
public name. They are imported here once, so that a release that moves them
breaks one file.
"""

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
  'call_fn',
  'choose',
  'get_innermost',
  'has_nested',
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
has_nested = unnest.has_nested
psum = distribute_lib.psum
replace_innermost = unnest.replace_innermost
safe_sum = mcmc_util.safe_sum
