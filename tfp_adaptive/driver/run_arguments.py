"""Checks the arguments of `tfpa.sample` before anything is computed."""

import os

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.driver import calling


def check(given):
  """Refuses what `tfpa.sample` does not allow; `given` are its `Arguments`."""
  calling.check('tfpa.sample')
  _check_kernel(given.kernel)
  _check_start(given.init_state)
  block_size = 1 if given.block_size is None else given.block_size
  lowest = dict(
    num_results=(given.num_results, 1),
    num_burnin_steps=(given.num_burnin_steps, 0),
    num_steps_between_results=(given.num_steps_between_results, 0),
    block_size=(block_size, 1),
  )
  for name, (value, least) in lowest.items():
    if not arguments.is_int(value) or value < least:
      raise ValueError(
        f'`{name}` must be an int of at least {least}, but got {value!r}.'
      )
  arguments.check_seed(given.seed)
  _check_folders(given.checkpoint_dir, given.draws_dir)


def _check_kernel(kernel):
  if not isinstance(kernel, tfp.mcmc.TransitionKernel):
    raise TypeError(
      f'`kernel` must be a `tfp.mcmc.TransitionKernel`, but got {kernel!r}. '
      'Write for example `tfpa.gradient_adaptive_langevin(target_log_prob_fn, '
      'num_adaptation_steps=1000)`.'
    )


def _check_start(init_state):
  for part in tf.nest.flatten(init_state):
    try:
      tf.convert_to_tensor(part)
    except (TypeError, ValueError) as error:
      raise TypeError(
        '`init_state` must be where the chains start, an array or a structure '
        f'of arrays [chains..., event...], but has the part {part!r}. Write '
        'for example `tf.random.stateless_normal([8, 3], seed=(0, 0))`.'
      ) from error


def _check_folders(checkpoint_dir, draws_dir):
  if draws_dir is not None and checkpoint_dir is not None:
    raise ValueError(
      'A run with `draws_dir` resumes from that folder. Leave out '
      '`checkpoint_dir`.'
    )
  given = dict(checkpoint_dir=checkpoint_dir, draws_dir=draws_dir)
  for name, folder in given.items():
    is_path = isinstance(folder, str | os.PathLike) and os.fspath(folder)
    if folder is not None and not is_path:
      raise ValueError(
        f'`{name}` must be the path of a folder, but got {folder!r}.'
      )
