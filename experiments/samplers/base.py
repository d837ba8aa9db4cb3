"""Parameters that all methods share, and the form of a method."""

from collections.abc import Callable
from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import NamedTuple
from typing import Optional

from pydantic import AfterValidator
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.targets.base import Target
from experiments.targets.registry import Parameters

# A dense factor of this size costs 36 MB in float32 and d^2 work a step.
MAX_DENSE_EVENT_SIZE = 3000

# A list of these numbers in a config stands for a list of methods; see
# `config.expand_methods`.
NumLeapfrogSteps = Annotated[int, Field(ge=1)]
AcceptProb = Annotated[float, Field(gt=0, lt=1)]


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

# Work of one step for each chain.
Cost = tfpa.interfaces.Cost


class BuildOptions(NamedTuple):
  """Settings of an experiment for all its methods."""

  num_adaptation_steps: int
  num_chains: int
  jit_compile: bool = True
  # Whether to trace the learned factor's diagonal at every step.
  trace_diagonal: bool = False


class Method(NamedTuple):
  """A method bound to a target, ready to run."""

  # `None` if `sample_fn` needs no kernel.
  kernel: Any
  # `None` if the cost of a step is random; the trace then counts it.
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

  # Whether the method takes targets that are estimated from a seed.
  takes_stochastic: ClassVar[bool] = False
  # Whether the sampler comes from another library.
  is_peer: ClassVar[bool] = False

  label: Label | None = Field(None, description='row of the table')
  num_adaptation_steps: int | None = Field(None, ge=0, le=10**9)
  num_results: int | None = Field(None, ge=4, le=10**9)

  def default_label(self) -> str:
    return self.name

  def row_label(self) -> str:
    """Returns the name of the method's row in a table."""
    return self.label or self.default_label()

  def given(self, *names: str) -> dict[str, Any]:
    """Returns {name: value} of the parameters that are not None."""
    values = {name: getattr(self, name) for name in names}
    return {name: v for name, v in values.items() if v is not None}

  def check_target(self, target: Target) -> None:
    """Raises ValueError unless the target is of the kind the method takes."""
    if target.target_log_prob_fn is None:
      raise ValueError(
        f'the method samples a density, but the field of {target.name} has '
        'none, because its prior covariance has no inverse. Write a sampler of '
        'latent Gaussian models such as marginal_gradient.'
      )
    if target.is_stochastic and not self.takes_stochastic:
      raise ValueError(
        f'the method evaluates the density, but {target.name} only estimates '
        'the density from a seed. Write a method for stochastic targets, such '
        'as am.'
      )

  def build(self, target: Target, options: BuildOptions) -> Method:
    raise NotImplementedError


def costs(kernel) -> dict[str, Cost]:
  """Returns the costs of an adapting and of a frozen step of a kernel."""
  return dict(
    adapting_cost=tfpa.cost_per_step(kernel, adapting=True),
    frozen_cost=tfpa.cost_per_step(kernel, adapting=False),
  )


def find_field(kernel_results, name):
  """Returns a field of nested kernel results."""
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
    **fields: Names in the kernel results, by their names in the trace.
  """

  def trace_fn(state, kernel_results):
    del state
    return {
      name: find_field(kernel_results, field) for name, field in fields.items()
    }

  return trace_fn


class Structured(MethodParameters):
  """Base of methods with a structure, named as in `tfpa.preconditioners`."""

  preconditioner: Literal['arrow', 'cholesky', 'diagonal', 'tridiagonal'] = (
    'cholesky'
  )
  num_globals: int | None = Field(
    None, ge=1, description='arrow: last coordinates, coupled to all'
  )

  def structure(self, target, is_paper):
    """Returns the preconditioner, or None for the library's default.

    Args:
      is_paper: Whether the first scale is 0.1 / sqrt(event_size).
    """
    check_dense(self.preconditioner, target)
    constants = self._constants(target)
    if self.preconditioner == 'cholesky':
      return None
    if is_paper:
      first = 0.1 * target.event_size**-0.5
      constants = {**constants, 'init_scale': first, 'min_scale': 1e-3}
    return getattr(tfpa.preconditioners, self.preconditioner)(**constants)

  def structure_label(self):
    """Returns a suffix such as ', arrow', or '' for the dense factor."""
    is_dense = self.preconditioner == 'cholesky'
    return '' if is_dense else f', {self.preconditioner}'

  def _constants(self, target):
    """Returns the constants of an arrow, given or from the target."""
    given = self.given('num_globals')
    if self.preconditioner != 'arrow':
      if given:
        raise ValueError(
          'num_globals belongs to preconditioner: arrow, but preconditioner is '
          f'{self.preconditioner!r}. Leave num_globals out.'
        )
      return {}
    named = (target.structures or {}).get('arrow')
    if not given and not named:
      raise ValueError(
        f"preconditioner: 'arrow' needs num_globals, which {target.name} "
        'does not have. Write a number, as in num_globals: 3, or '
        'preconditioner: diagonal.'
      )
    return given or named


def check_dense(preconditioner: str, target: Target) -> None:
  """Refuses a dense factor that would not fit into memory."""
  if preconditioner == 'cholesky' and target.event_size > MAX_DENSE_EVENT_SIZE:
    raise ValueError(
      f'preconditioner: {preconditioner!r} holds {target.event_size}^2 numbers '
      f'for {target.name}; allowed are at most {MAX_DENSE_EVENT_SIZE}^2. Write '
      'preconditioner: diagonal.'
    )
