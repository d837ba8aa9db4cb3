"""The recursion x_i = r_i + a_i x_{i+1}, or x_{i-1}, in place and compiled.

On a CPU core, XLA compiles a while loop whose body touches few bytes into one
tight loop. Any other loop takes about a microsecond an iteration. An iteration
therefore solves several coordinates if there are few rows, else one coordinate.
Rows are not transposed, because two copies would take as long as the loop.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tfp_adaptive.core.tfp_private import prefer_static as ps

_MOST_BYTES, _MOST_COORDINATES = 160, 8  # Bounds for one iteration.


def recursion(multipliers, rows, is_backward):
  """Returns x, [n, d], without gradient; the multipliers are [d] or [n, d].

  If `is_backward`, x_i follows from x_{i+1}.
  """
  if multipliers.shape.rank == 1:
    multipliers = multipliers[tf.newaxis]
  return _compiled(multipliers, rows, is_backward)


def _recursion(multipliers, rows, is_backward):
  size, per_turn = ps.shape(rows)[1], 1
  if rows.shape.is_fully_defined():
    num_read = rows.shape[0] + multipliers.shape[0] - 1
    per_turn = _MOST_BYTES // max(num_read * rows.dtype.size, 1)
    per_turn = max(1, min(per_turn, _MOST_COORDINATES, size))
  done = 1
  for step in sorted({per_turn, 1}, reverse=True):
    rows = _run(multipliers, rows, is_backward, done, step)
    done = size - (size - done) % step
  return rows


def _run(multipliers, rows, is_backward, done, step):
  """Returns rows with more coordinates solved, `step` in each iteration.

  The first `done` coordinates, or the last ones if backward, are solved
  already. The loop ends when fewer than `step` coordinates are left.
  """
  num_rows, size = tf.unstack(tf.shape(rows))
  num_multipliers = tf.shape(multipliers)[0]

  def turn(done, rows):
    start = size - done - step if is_backward else done
    before = start + step if is_backward else start - 1
    solved = [tf.slice(rows, [0, before], [num_rows, 1])]
    columns, weights = (
      tf.split(tf.slice(m, [0, start], [n, step]), step, axis=1)
      for m, n in ((rows, num_rows), (multipliers, num_multipliers))
    )
    order = range(step)[::-1] if is_backward else range(step)
    for i in order:
      solved.append(columns[i] + weights[i] * solved[-1])
    solved = solved[:0:-1] if is_backward else solved[1:]
    return done + step, gen_xla_ops.xla_dynamic_update_slice(
      rows, tf.concat(solved, axis=1), tf.stack([0, start])
    )

  _, rows = tf.while_loop(
    lambda done, _: done + step <= size,
    turn,
    (done, rows),
    maximum_iterations=size,
  )
  return rows


# Callers that are not compiled use XLA here, too, because a loop in a plain
# graph takes a thousand times as long.
_compiled = tf.function(_recursion, jit_compile=True, autograph=False)
