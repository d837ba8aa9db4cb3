"""Methods as a config asks for them, built without a run."""

from experiments.papers import config as configs
from experiments.samplers.base import BuildOptions
from experiments.targets.base import BuildContext


def built(methods, target, **values):
  """Returns the config, its target and its methods.

  Args:
    methods: Dicts of a config.
    target: Dict of a config.
    **values: Other keys of the config.
  """
  config = configs.parse_config(
    {
      'name': 'x',
      'target': target,
      'methods': methods,
      'num_chains': 2,
      'num_adaptation_steps': 40,
      'num_results': 20,
      **values,
    }
  )
  target = config.target.build(BuildContext(config.dtype))
  found = []
  for index, method in enumerate(config.methods):
    method.check_target(target)
    steps = method.num_adaptation_steps
    if steps is None:
      steps = config.num_adaptation_steps
    options = BuildOptions(steps, config.num_chains, config.jit_compile)
    found.append(config.methods[index].build(target, options))
  return config, target, found
