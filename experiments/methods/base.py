"""What a config may say about any method, and what running one needs."""

from collections.abc import Callable
from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Optional

from pydantic import AfterValidator
from pydantic import Field
from pydantic import WithJsonSchema

import tfp_adaptive as tfpa
from experiments.framework.registry import Parameters

__all__ = [
  'AcceptProb',
  'BuildOptions',
  'Cost',
  'Method',
  'MethodParameters',
  'NumLeapfrogSteps',
  'costs',
  'find_field',
  'traced',
]


_POSITIVE = {'type': 'integer', 'minimum': 1}

# A list in a config stands for one method each: `config.expand_methods`.
NumLeapfrogSteps = Annotated[
  int,
  Field(ge=1),
  WithJsonSchema({'anyOf': [_POSITIVE, {'type': 'array', 'items': _POSITIVE}]}),
]


_PROBABILITY = {'type': 'number', 'exclusiveMinimum': 0, 'exclusiveMaximum': 1}

# A list stands for one method each, too.
AcceptProb = Annotated[
  float,
  Field(gt=0, lt=1),
  WithJsonSchema(
    {'anyOf': [_PROBABILITY, {'type': 'array', 'items': _PROBABILITY}]}
  ),
]


def _checked_label(label):
  # matplotlib leaves a label with a leading underscore out of its legends.
  if not label.isprintable() or label != label.strip() or label[:1] == '_':
    raise ValueError(
      'a label is one line of printable characters, without spaces around it '
      'or an underscore in front'
    )
  return label


# It becomes a row of tables, part of a figure and the name of a folder.
Label = Annotated[
  str, Field(min_length=1, max_length=120), AfterValidator(_checked_label)
]

# What one step does for each chain.
Cost = tfpa.interfaces.Cost


class BuildOptions(NamedTuple):
  """What the experiment tells every method."""

  num_adaptation_steps: int
  num_chains: int
  jit_compile: bool = True
  # Trace the learned factor's diagonal at every step.
  trace_diagonal: bool = False


class Method(NamedTuple):
  """A method bound to a target, ready to run."""

  # None where `sample_fn` is not tfpa.sample.
  kernel: Any
  adapting_cost: Optional[Cost]
  frozen_cost: Optional[Cost]
  # (state, kernel_results) -> dict of Tensors recorded at every step.
  trace_fn: Optional[Callable] = None
  # Takes the arguments of tfpa.sample but `kernel`; None: tfpa.sample.
  sample_fn: Optional[Callable] = None
  # Whether the kernel results hold a learned scale factor.
  is_adaptive: bool = False
  # Whether one learned `step_size` is all there is to report.
  has_step_size: bool = False


class MethodParameters(Parameters):
  """Base of the registered methods; counts given here override the config's."""

  # Whether the method takes a target that is estimated from a seed.
  takes_stochastic: ClassVar[bool] = False

  label: Label | None = Field(None, description='row of the table')
  num_adaptation_steps: int | None = Field(None, ge=0, le=10**9)
  num_results: int | None = Field(None, ge=4, le=10**9)

  def default_label(self):
    return self.name

  def check_target(self, target):
    """Raises ValueError unless the target is of the kind the method takes."""
    if target.target_log_prob_fn is None:
      raise ValueError(
        f'it samples one density, but the prior covariance of {target.name} '
        'has no inverse, and the field no density; write target: coordinates: '
        'white, or take a sampler of latent Gaussian models such as '
        'marginal_gradient.'
      )
    if target.is_stochastic and not self.takes_stochastic:
      raise ValueError(
        f'it evaluates the density, but {target.name} only estimates it from '
        'a seed; take a method for stochastic targets.'
      )

  def build(self, target, options: BuildOptions) -> Method:
    raise NotImplementedError


def costs(kernel):
  """Returns the costs of an adapting and of a frozen step, by the ledger."""
  return dict(
    adapting_cost=tfpa.cost_per_step(kernel, adapting=True),
    frozen_cost=tfpa.cost_per_step(kernel, adapting=False),
  )


def find_field(kernel_results, name):
  """Returns a field of the kernel results, however deep the kernel nests."""
  results = kernel_results
  while not hasattr(results, name):
    fields = getattr(results, '_fields', ())
    inner = [f for f in ('inner_results', 'accepted_results') if f in fields]
    if not inner:
      raise ValueError(f'the kernel results have no field {name!r}.')
    results = getattr(results, inner[0])
  return getattr(results, name)


def traced(**fields):
  """Returns a trace_fn that records fields of the kernel results.

  Args:
    **fields: name in the trace to name in the kernel results.
  """

  def trace_fn(state, kernel_results):
    del state
    return {
      name: find_field(kernel_results, field) for name, field in fields.items()
    }

  return trace_fn
