"""The log density of a model as one flat program, traced for all stages."""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import target_call
from tfp_adaptive.core import vectorized_loops
from tfp_adaptive.driver import known_programs
from tfp_adaptive.posterior import flat_graph
from tfp_adaptive.posterior.engines import program as program_lib
from tfp_adaptive.posterior.engines import python_program

_MOST_OF_STEPS = 1000  # Most coordinates to evaluate by the steps' program.
_LARGEST_DIFFERENCE = 1e-2  # Relative difference of float64 and float32.
# A later call with the same model and data reuses the program.
_KNOWN = known_programs.Known()


class Density:
  """Log density of vectors, the `target_log_prob_fn` of all kernels of a run.

  Attributes:
    dtype: Dtype in which values are computed, and dtype of states.
    num_calls: Evaluations by `evaluate` so far, for each chain.
    note: Reason why float64 was not used although it was wanted, or ''.
    xla_refusal: What TensorFlow said when it traced the density for XLA, or ''.
  """

  def __init__(self, problem, num_chains, dtype=None):
    """Traces the density of a `Problem` at [num_chains, d].

    Without `dtype`, the density is computed in float64 on a CPU if its
    operations allow it, and in the model's own dtype on an accelerator.
    """
    self._target = problem.target_log_prob_fn
    self._model_dtype = problem.dtype
    self._event_size, self._num_chains = problem.event_size, num_chains
    # Value and gradient of a density outside of TensorFlow, or None.
    self.in_python = problem.in_python
    self._entries = {}  # Number of rows -> its program, `known_programs.Entry`.
    self.is_compiled = False
    self.num_calls, self.note, self.xla_refusal = 0, '', ''
    self.dtype = problem.dtype
    self._widens = False
    if dtype is None:
      accelerators = map(tf.config.list_logical_devices, ('GPU', 'TPU'))
      is_on_cpu = not any(accelerators)
      dtype = tf.float64 if is_on_cpu else problem.dtype
    if tf.as_dtype(dtype) != problem.dtype:
      self._change_dtype(problem, tf.as_dtype(dtype))

  def __call__(self, states):
    """Returns log densities [...] of states [..., d]; differentiable once."""
    states = tf.cast(tf.convert_to_tensor(states), self.dtype)
    if not states.shape.is_fully_defined():
      value = self._target(tf.cast(states, self._model_dtype))
      return tf.cast(value, self.dtype)
    batch = states.shape[:-1]
    program = self.program(batch.num_elements())

    @custom_gradient.custom_gradient
    def log_prob(rows):
      # Without `stop_gradient` a tape would differentiate the program, although
      # its second value is the gradient.
      value, gradient = program(tf.stop_gradient(rows))
      return value, lambda upstream: upstream[:, tf.newaxis] * gradient

    rows = tf.reshape(states, [-1, self._event_size])
    return tf.reshape(log_prob(rows), batch)

  def program(self, num_rows):
    """Returns the function of rows [num_rows, d] to values and gradients."""
    entry = self._entry(num_rows)
    if self._widens:
      return _widened(entry)
    return entry.function

  def _entry(self, num_rows):
    if num_rows not in self._entries:
      size, dtype = self._event_size, self._model_dtype
      is_first = num_rows == self._num_chains
      trace = source if is_first else source.__wrapped__
      traced = trace(self._target, num_rows, size, dtype)
      self.xla_refusal = traced.xla_refusal
      self._entries[num_rows] = traced.entry
    return self._entries[num_rows]

  def _once(self, name, make):
    """Returns the result of the first `make()` for a name and this dtype."""
    entry = self._entry(self._num_chains)
    return entry.once((name, self.dtype), make)

  def evaluate(self, rows):
    """Returns values [n] and gradients [n, d] of rows [n, d], numpy.

    A batch has one row for each chain, so that the density needs no more memory
    than in a step.
    """
    rows = np.asarray(rows, self.dtype.as_numpy_dtype)
    count, size = len(rows), self._num_chains
    num_batches = -(-count // size)
    # The last batch is filled up with its first row.
    filled = np.full([num_batches * size], (num_batches - 1) * size)
    filled[:count] = np.arange(count)
    batches = rows[filled].reshape(num_batches, size, -1)
    values, gradients = [], []
    while len(values) * size < count:
      found = self._evaluated(batches[len(values) :])
      for whole, part in zip((values, gradients), found):
        whole.extend(part)
    self.num_calls += num_batches
    return np.concatenate(values)[:count], np.concatenate(gradients)[:count]

  def values_in_float64(self, rows):
    """Returns values [n] in float64; `None` if that is used or impossible."""
    entry = self._entry(self._num_chains)
    if (
      self.dtype == tf.float64
      or self.in_python
      or flat_graph.refuses_float64(entry.function)
      or entry.function.captured_inputs
    ):
      return None
    narrow = np.asarray(rows, self.dtype.as_numpy_dtype)
    count, size = len(narrow), self._num_chains
    batches = np.resize(narrow, [-(-count // size), size, narrow.shape[-1]])
    try:
      wide = _widened(entry)
      found = [wide(tf.constant(x, tf.float64))[0].numpy() for x in batches]
    except Exception:  # An operation may have no kernel for float64.
      return None
    return np.concatenate(found)[:count]

  def _evaluated(self, batches):
    """Returns values and gradients of the first batch, or of several, numpy.

    The first call also evaluates the density alone, because errors then say
    what is wrong with the density.
    """
    if self.in_python:
      return self.steps().evaluate(batches)
    if not self.num_calls or not self._has_small_steps:
      value, gradient = self._run(batches[0])
      if not self._has_small_steps:
        return [value.numpy()], [gradient.numpy()]
    steps = self.steps()
    return steps.evaluate(batches[: steps.most_steps])

  @property
  def _has_small_steps(self):
    """Whether the compiled program of the steps also evaluates the density."""
    # An argument of this program is a matrix [d, d], so d must not be large.
    return self.is_compiled and self._event_size <= _MOST_OF_STEPS

  def use_xla(self, with_xla):
    """Sets whether XLA compiles the steps; call it before the first step."""
    self.is_compiled = with_xla

  def steps(self):
    """Returns the program of the steps: `Program` or `PythonProgram`."""
    if self.in_python:
      return python_program.PythonProgram(self.in_python)
    return self._once(
      f'steps{" with XLA" * self.is_compiled}',
      lambda: program_lib.Program(
        self.program(self._num_chains),
        self._num_chains,
        self._event_size,
        self.dtype,
        self.is_compiled,
      ),
    )

  @property
  def graph(self):
    """The graph that computes values and gradients."""
    return self.program(self._num_chains).graph

  @property
  def shape_of_values(self):
    """The shape of what the density returns for all chains."""
    return tuple(self.program(self._num_chains).outputs[0].shape)

  def shape_of_one(self):
    """Returns the static shape of the values of one row; `None` if unknown."""
    rows = tf.TensorSpec([1, self._event_size], self._model_dtype)
    try:
      return custom_gradient.in_graph(
        lambda rows: tf.convert_to_tensor(self._target(rows)).shape, rows
      )
    except Exception:  # A density may be written for one number of chains.
      return None

  def lower(self):
    """Raises XLA's error if it refuses the density; compiles nothing."""
    if self.xla_refusal:
      raise ValueError(self.xla_refusal)

    def lowered():
      rows = tf.zeros([self._num_chains, self._event_size], self.dtype)
      function = self._function(jit_compile=True)
      return function.experimental_get_compiler_ir(rows)('hlo') is not None

    self._once('lowered', lowered)

  def _function(self, jit_compile=None):
    """Returns the program as a `tf.function`, which is called by position."""
    program = self.program(self._num_chains)
    return tf.function(
      lambda rows: program(rows), autograph=False, jit_compile=jit_compile
    )

  def _run(self, batch):
    rows = tf.TensorSpec(batch.shape, self.dtype)
    evaluate = self._once(
      'function', lambda: self._function().get_concrete_function(rows)
    )
    try:
      return evaluate(tf.constant(batch))
    except (tf.errors.InvalidArgumentError, LookupError) as error:
      what = 'The log density or its gradient cannot be computed'
      raise target_call.explained(error, what) from error

  def _change_dtype(self, problem, dtype):
    """Computes in another dtype from now on if the density allows it."""
    concrete = self.program(self._num_chains)
    if dtype != tf.float64:
      raise ValueError(
        f'`dtype={dtype.name}`: the unknowns of the model are '
        f'{problem.dtype.name}. Write the model in {dtype.name}, or leave '
        '`dtype` out.'
      )
    operation = flat_graph.refuses_float64(concrete)
    if operation:
      self.note = f'float64 would change {operation}'
      return
    if concrete.captured_inputs:
      self.note = 'its graph cannot be frozen'
      return
    rows = tf.convert_to_tensor(problem.draw_starts(self._num_chains, (0, 0)))
    try:
      wide = _widened(self._entry(self._num_chains))
      is_alike = _are_alike(concrete(rows), wide(tf.cast(rows, dtype)))
    except Exception as error:  # The note quotes any error of TensorFlow.
      reason = (str(error).splitlines() or [type(error).__name__])[0]
      self.note = f'float64 failed: {reason[:99]}'
      return
    if not is_alike:
      self.note = 'in float64 the density has other values'
      return
    self.dtype, self._widens = dtype, True


def _widened(entry):
  """Returns the program of an `Entry` in float64."""
  return entry.once('wide', lambda: flat_graph.in_float64(entry.function))


class Source(NamedTuple):
  """A density as the user wrote it, traced."""

  # The function of rows [n, d] to values [n] and gradients [n, d], without XLA
  # and, if possible, flat (`flat_graph`).
  entry: known_programs.Entry
  target: Callable  # The Python function.
  traced: Any  # The concrete function before `flat_graph`.
  xla_refusal: str  # TensorFlow's error from tracing it for XLA, or ''.


@functools.lru_cache(maxsize=1)  # An entry holds a graph and its captures.
def source(target, num_rows, event_size, dtype):
  """Returns the `Source` of a density `target` in the dtype of its model.

  Every `Problem` has a new `target_log_prob_fn`, so that the cache never
  returns the density of another `Problem`.
  """

  def value_and_gradient(rows):
    with tf.GradientTape() as tape:
      tape.watch(rows)
      with vectorized_loops.in_step():
        value = tf.convert_to_tensor(target(rows))
      total = tf.reduce_sum(value)
    gradient = tape.gradient(
      total, rows, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return value, gradient

  def trace(for_xla):
    return tf.function(
      value_and_gradient, autograph=False, jit_compile=for_xla
    ).get_concrete_function(tf.TensorSpec([num_rows, event_size], dtype))

  # The gradient of a loop is another program if it is traced for XLA. That
  # program runs without XLA too.
  refusal = ''
  try:
    traced = trace(True)
  except (tf.errors.OpError, ValueError, TypeError, LookupError) as error:
    refusal = str(error) or type(error).__name__
    try:
      traced = trace(None)
    except LookupError as also:
      what = 'The log density or its gradient cannot be computed'
      raise target_call.explained(also, what) from also
  try:
    entry = _KNOWN.entry(flat_graph.flat(traced))
  except Exception:
    # A graph that cannot be frozen, for example with a table, keeps its calls.
    # It is traced again, because XLA would compile the first trace by itself.
    entry = known_programs.Entry(traced if refusal else trace(None))
  return Source(entry, target, traced, refusal)


def _are_alike(found, wide):
  """Whether values [n] and gradients [n, d] agree in float32 and in float64.

  Most rows must agree up to rounding. Not all rows need to agree, because
  float32 may overflow, or lose all digits that matter, at a start that is far
  from the posterior.
  """
  is_alike = np.ones(len(found[0]), bool)
  is_known = is_alike.copy()
  for narrow, other in zip(found, wide):
    narrow, other = np.asarray(narrow, np.float64), np.asarray(other)
    axes = tuple(range(1, narrow.ndim))
    is_known &= np.all(np.isfinite(narrow) & np.isfinite(other), axis=axes)
    with np.errstate(invalid='ignore'):  # Infinities may cancel.
      gap = np.max(np.abs(narrow - other), axis=axes, initial=0.0)
    scale = 1.0 + np.max(np.abs(other), axis=axes, initial=0.0)
    is_alike &= gap <= _LARGEST_DIFFERENCE * scale
  return not np.any(is_known) or np.mean(is_alike[is_known]) > 0.5
