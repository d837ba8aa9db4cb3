"""What a config may say about any method, and what running one needs."""

from collections.abc import Callable
from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import NamedTuple
from typing import Optional

from pydantic import AfterValidator
from pydantic import Field
from pydantic import WithJsonSchema

import tfp_adaptive as tfpa
from experiments.targets.base import Target
from experiments.targets.registry import Parameters

__all__ = [
  'AcceptProb',
  'BuildOptions',
  'Cost',
  'MAX_DENSE_EVENT_SIZE',
  'Method',
  'MethodParameters',
  'NumLeapfrogSteps',
  'Structured',
  'check_dense',
  'costs',
  'find_field',
  'traced',
]

# A dense factor of this size costs 36 MB in float32 and d^2 work a step.
MAX_DENSE_EVENT_SIZE = 3000

_POSITIVE = {'type': 'integer', 'minimum': 1}

# A list of these in a config stands for one method each, see
# `config.expand_methods`.
NumLeapfrogSteps = Annotated[
  int,
  Field(ge=1),
  WithJsonSchema({'anyOf': [_POSITIVE, {'type': 'array', 'items': _POSITIVE}]}),
]

_PROBABILITY = {'type': 'number', 'exclusiveMinimum': 0, 'exclusiveMaximum': 1}

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


# A label becomes a row of tables, part of a figure and the name of a folder.
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

  # `None` where `sample_fn` does not need one.
  kernel: Any
  # `None` where the cost of a step is random: the trace counts it.
  adapting_cost: Optional[Cost]
  frozen_cost: Optional[Cost]
  # (state, kernel_results) -> dict of Tensors recorded at every step.
  trace_fn: Optional[Callable] = None
  # Takes the arguments of `tfpa.sample` except `kernel`. `None` means
  # `tfpa.sample` itself.
  sample_fn: Optional[Callable] = None
  # Whether the kernel results hold a learned scale factor.
  is_adaptive: bool = False
  # Whether the method learns one `step_size` and nothing else.
  has_step_size: bool = False


class MethodParameters(Parameters):
  """Base of the registered methods; counts given here override the config's."""

  # Whether the method takes a target that is estimated from a seed.
  takes_stochastic: ClassVar[bool] = False
  # Whether the sampler comes from another library.
  is_peer: ClassVar[bool] = False

  label: Label | None = Field(None, description='row of the table')
  num_adaptation_steps: int | None = Field(None, ge=0, le=10**9)
  num_results: int | None = Field(None, ge=4, le=10**9)

  def default_label(self) -> str:
    return self.name

  def given(self, *names: str) -> dict[str, Any]:
    """Returns {name: value} of the parameters that are not None."""
    values = {name: getattr(self, name) for name in names}
    return {name: v for name, v in values.items() if v is not None}

  def check_target(self, target: Target) -> None:
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

  def build(self, target: Target, options: BuildOptions) -> Method:
    raise NotImplementedError


def costs(kernel) -> dict[str, Cost]:
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


# The one constant that a structure takes in addition to its scales.
_CONSTANTS = {
  'arrow': 'num_globals',
  'banded': 'num_superdiagonals',
  'low_rank': 'rank',
}


class Structured(MethodParameters):
  """The structure, by its name in `tfpa.preconditioners`."""

  preconditioner: Literal[
    'arrow', 'banded', 'cholesky', 'diagonal', 'low_rank', 'tridiagonal'
  ] = 'cholesky'
  num_globals: int | None = Field(
    None, ge=1, description='arrow: last coordinates, coupled to all'
  )
  num_superdiagonals: int | None = Field(
    None, ge=1, description='banded: of the inverse factor'
  )
  globals_first: bool = Field(
    False, description='arrow: the globals are the first coordinates'
  )
  rank: int | None = Field(
    None, ge=1, description='low_rank: beside a diagonal'
  )
  init_scale: float | None = Field(None, gt=0)

  def structure(self, target, is_paper):
    """Returns the preconditioner, or None for the library's own.

    Args:
      target: the `Target`.
      is_paper: whether the first scale is 0.1 / sqrt(event_size).
    """
    named = self._named_constants(target)
    self._check_structure(target, named)
    if self.preconditioner == 'cholesky' and self.init_scale is None:
      return None
    constants = dict(named)
    if is_paper:
      constants['init_scale'] = 0.1 * target.event_size**-0.5
      constants['min_scale'] = 1e-3
    if self.init_scale is not None:
      constants['init_scale'] = self.init_scale
    name = _CONSTANTS.get(self.preconditioner)
    if name is not None and getattr(self, name) is not None:
      constants[name] = getattr(self, name)
      if self.preconditioner == 'arrow':
        constants['globals_first'] = self.globals_first
    return getattr(tfpa.preconditioners, self.preconditioner)(**constants)

  def structure_label(self):
    """Returns ', arrow' and the like; nothing for the dense factor."""
    if self.preconditioner == 'cholesky':
      return ''
    return f', {self.preconditioner.replace("_", " ")}'

  def _named_constants(self, target):
    """Returns the constants of the structure that the target names, or {}."""
    own = _CONSTANTS.get(self.preconditioner)
    if own is None or getattr(self, own) is not None:
      return {}
    return (target.structures or {}).get(self.preconditioner, {})

  def _check_structure(self, target, named):
    check_dense(self.preconditioner, target)
    for owner, name in _CONSTANTS.items():
      is_given = getattr(self, name) is not None
      if owner == self.preconditioner and not is_given and not named:
        raise ValueError(
          f'preconditioner: {owner!r} needs its {name}, and {target.name} '
          f'names none; write its number, as in {name}: 3, or preconditioner: '
          'diagonal.'
        )
      if owner != self.preconditioner and is_given:
        raise ValueError(
          f'{name}: it belongs to preconditioner: {owner}, but that is '
          f'{self.preconditioner!r}; leave it out.'
        )
    if self.globals_first and self.num_globals is None:
      raise ValueError(
        'globals_first: it belongs to num_globals, which is not given; write '
        'preconditioner: arrow and num_globals: 3, or leave it out.'
      )


def check_dense(preconditioner: str, target: Target) -> None:
  """Refuses a dense factor that would not fit into memory."""
  if preconditioner == 'cholesky' and target.event_size > MAX_DENSE_EVENT_SIZE:
    raise ValueError(
      f'preconditioner: {preconditioner!r} holds {target.event_size}^2 numbers '
      f'for {target.name}; allowed are at most {MAX_DENSE_EVENT_SIZE}^2. Write '
      'preconditioner: diagonal.'
    )
