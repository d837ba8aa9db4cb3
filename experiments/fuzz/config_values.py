"""The values of a config, changed where a key or a value stands."""

from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import pick
from experiments.fuzz.case import REFUSE
from experiments.fuzz.values import at
from experiments.fuzz.values import changed
from experiments.fuzz.values import leaves
from experiments.fuzz.values import renamed
from experiments.fuzz.values import shuffled
from experiments.fuzz.values import wrong_value

__all__ = ['OF_ANY', 'PANEL', 'RUN', 'STRUCTURE']

RUN = {
  'name': 'small',
  'description': 'Two methods, few steps.',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [
    {'name': 'mala', 'label': 'first', 'step_size': 0.25},
    {'name': 'hmc', 'num_leapfrog_steps': 3, 'target_accept_prob': 0.65},
  ],
  'num_chains': 2,
  'num_adaptation_steps': 10,
  'num_results': 20,
  'num_repeats': 2,
  'seed': 3,
  'init': {'kind': 'normal', 'scale': 1.5},
  'jit_compile': False,
}
PANEL = {
  'name': 'small',
  'gates': 'gates.yaml',
  'references': 'reference',
  'targets': [{'name': 'Banana'}, {'name': 'NealsFunnel', 'ndims': 3}],
  'methods': [{'name': 'mala'}, {'name': 'hmc', 'num_leapfrog_steps': 2}],
  'num_seeds': 2,
  'num_chains': 4,
  'gradients_per_chain': 2000,
  'max_draws': 5000,
  'seconds_per_pair': 60.5,
}
_REQUIRED = {
  'run': ['name', 'target', 'methods', 'num_adaptation_steps', 'num_results'],
  'panel': ['name', 'gates', 'targets', 'methods', 'num_chains', 'max_draws'],
}
_OUT_OF_RANGE = {
  'run': {
    ('num_chains',): (0, -1, 10**12, 2**62),
    ('num_results',): (3, -5, 10**15),
    ('num_repeats',): (0, -2, 10**12),
    ('seed',): (-1,),
    ('target', 'rho'): (1.0, -1.5, 1e300),
    ('methods', 0, 'step_size'): (0.0, -0.5),
    ('methods', 1, 'num_leapfrog_steps'): (0, -3),
    ('methods', 1, 'target_accept_prob'): (0.0, 1.0, 65.0),
    ('init', 'scale'): (0.0, -1.0),
    ('name',): ('', 'a b', 'a/b', '../up', 'x' * 300, '-x', '$a$', 'a\n'),
  },
  'panel': {
    ('num_chains',): (0, -1, 10**12),
    ('num_seeds',): (0, -1),
    ('gradients_per_chain',): (99, -(10**4)),
    ('seconds_per_pair',): (0.0, -1.5),
    ('targets', 1, 'ndims'): (0, -4, 10**9),
    ('gates',): ('', 'none.yaml', 'x' * 400, 'a\0b', '..'),
  },
}
# Labels that a table, a figure and a path must show as they are, and others
# that no file name or line of a table can hold.
_GOOD_LABELS = (
  r'$\foo$', '$x$', 'a|b', '[/b]', '[red]x', ':smile:', '<b>x</b>', 'a\\',
  '*a*', '..', '/', '`x`', '\u00e9\u4e2d', '&amp;',
  '1e3', '010', 'yes', '2024-01-31', '~', 'null', '0x1f', '{x}', '%s',
  '#1', '$', '\\$$',
)  # fmt: skip
_BAD_LABELS = (
  'x' * 400, 'a\nb', '', '   ', '\ta', 'a\0', '\x1b[31m', '_hidden', '\ud800',
  '\u4e2d' * 300, ' a', 'a\r',
)  # fmt: skip


def _wrong_type(rng, kind, values):
  path = pick(rng, leaves(values))
  if kind == 'committed':
    # Some parameters take text of any kind, others whole and real numbers.
    return changed(values, path, pick(rng, [[], {}, [[]], {'a': 1}])), REFUSE
  wrong = wrong_value(rng, at(values, path))
  if path[-1] == 'description' and isinstance(wrong, str):
    wrong = ['x']
  if path[-1] in ('label', 'references', 'gates') and isinstance(wrong, str):
    wrong = {'x': 1}
  return changed(values, path, wrong), REFUSE


def _wrong_name(rng, kind, values):
  names = [p for p in leaves(values) if p[-1] in ('name', 'kind')]
  wrong = pick(
    rng,
    [[], {}, ['mala'], {'mala': 1}, None, 3, True, 'x' * 5000, 1e300, '',
     [['mala']], 'MALA ', '\u00e9', '__class__', 'name'],
  )  # fmt: skip
  paths = [p for p in names if len(p) > 1]
  return changed(values, pick(rng, paths), wrong), REFUSE


def _misspelled(rng, kind, values):
  path = pick(rng, leaves(values))
  path = path[: 1 + int(rng.integers(len(path)))]
  if isinstance(path[-1], int):
    path = path[:-1]
  key = path[-1]
  wrong = pick(rng, [key + 's', key[1:], key.upper(), key + ' ', f'{key}.a'])
  if key in ('target', 'targets'):
    wrong = 'targts'
  if 'edition' in str(path) or 'gradients_of' in str(path):
    wrong = key + 's'  # Of labels there are some in capitals.
  return renamed(values, path, wrong), REFUSE


def _added(rng, kind, values):
  folders = [()] + [p[:-1] for p in leaves(values) if len(p) > 1]
  folders = [p for p in folders if isinstance(at(values, p), dict)]
  key = pick(
    rng,
    [
      'x',
      'colour',
      'k' * 5000,
      '\u4e2d',
      'a.b',
      '0',
      '<<',
      '',
      1,
      None,
      1.5,
      True,
    ],
  )
  value = pick(rng, [1, None, 'x' * 9000, {'a': [1] * 500}, [[[]]]])
  return changed(values, pick(rng, folders) + (key,), value), REFUSE


def _removed(rng, kind, values):
  nested = [('methods', 0, 'name'), ('methods', 1, 'num_leapfrog_steps')]
  paths = [(key,) for key in _REQUIRED[kind]] + nested
  return changed(values, pick(rng, paths)), REFUSE


def _out_of_range(rng, kind, values):
  path = pick(rng, list(_OUT_OF_RANGE[kind]))
  return changed(values, path, pick(rng, _OUT_OF_RANGE[kind][path])), REFUSE


def _shape(rng, kind, values):
  """Lists for dicts, dicts for lists, methods that are none."""
  key = pick(rng, ['methods', 'target' if kind == 'run' else 'targets'])
  wrong = pick(
    rng,
    [
      [],
      {},
      None,
      'mala',
      3,
      [None],
      [[]],
      ['mala'],
      [3],
      [{}],
      [[{'name': 'mala'}]],
    ],
  )
  return changed(values, (key,), wrong), REFUSE


def _too_many(rng, kind, values):
  steps = list(range(1, 3001))
  probs = [0.3 + i / 1e4 for i in range(3000)]
  method = {'name': 'hmc', 'num_leapfrog_steps': steps}
  if rng.random() < 0.5:
    method['target_accept_prob'] = probs
  return changed(values, ('methods', 1), method), REFUSE


def _lists(rng, kind, values):
  """Lists of values that stand for several methods, some not to be had."""
  wrong = pick(
    rng,
    [[], [[]], [True], [None], ['x'], [1, 1], [0], [{}], [1, 1.5], [2**40, -1]],
  )
  path = ('methods', 1, 'num_leapfrog_steps')
  return changed(values, path, wrong), REFUSE


def _same_label(rng, kind, values):
  values = changed(values, ('methods', 0, 'label'), 'same')
  return changed(values, ('methods', 1, 'label'), 'same'), REFUSE


def _odd_label(rng, kind, values):
  return changed(
    values, ('methods', 0, 'label'), pick(rng, _GOOD_LABELS)
  ), ACCEPT


def _bad_label(rng, kind, values):
  return changed(
    values, ('methods', 0, 'label'), pick(rng, _BAD_LABELS)
  ), REFUSE


def _beside(rng, kind, values):
  """Nothing in the config itself; in a file that it names, see `_write`."""
  return values, REFUSE if kind == 'panel' else ACCEPT


def _order(rng, kind, values):
  return shuffled(rng, values), ACCEPT


# Name of the mutation to (rng, kind, values) -> (values, what is expected).
STRUCTURE = {
  'wrong type': _wrong_type,
  'wrong name': _wrong_name,
  'key misspelled': _misspelled,
  'key added': _added,
  'key removed': _removed,
  'out of range': _out_of_range,
  'wrong shape': _shape,
  'too many methods': _too_many,
  'list of values': _lists,
  'same label': _same_label,
  'odd label': _odd_label,
  'bad label': _bad_label,
  'key order': _order,
  'bad gates': _beside,
  'bad reference': _beside,
}

OF_ANY = [
  'wrong type',
  'wrong name',
  'key misspelled',
  'key added',
  'key order',
]
