"""The text of a config, broken below the level of keys and values."""

import json

import yaml

from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import EITHER
from experiments.fuzz.case import pick
from experiments.fuzz.case import REFUSE
from experiments.fuzz.values import changed
from experiments.fuzz.values import leaves
from experiments.fuzz.values import shuffled

__all__ = ['dump', 'flipped', 'mutate', 'neutral', 'truncated']


def dump(values, **options):
  """Returns the YAML of nested values."""
  options = {'sort_keys': False, 'allow_unicode': True, **options}
  return yaml.safe_dump(values, width=10**7, **options)


def mutate(rng, values):
  """Returns (name of the mutation, text or bytes, what is expected)."""
  name = pick(rng, list(_MUTATIONS))
  text, expected = _MUTATIONS[name](rng, values)
  return name, text, expected


def neutral(rng, name, text):
  """Returns name and text with a second change, one without a meaning."""
  if any(word in name for word in _WHOLE) or not text.startswith('name:'):
    return name, text
  second = pick(rng, ['comment', 'blank lines', 'start of document', 'mark'])
  texts = {
    'comment': '# A comment: [not, read}\n' + text + '# the end',
    'blank lines': '\n\n' + text + '\n   \n',
    'start of document': '---\n' + text,
    'mark': '\ufeff' + text,
  }
  return f'{name} + {second}', texts[second]


# What these write is no text of keys at the top level.
_WHOLE = ('file', 'neutral', 'encoding', 'document', 'bomb', 'deep')


def flipped(rng, data):
  """Returns bytes with one to four bits turned."""
  data = bytearray(data)
  for _ in range(1 + int(rng.integers(4))):
    if data:
      data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
  return bytes(data)


def truncated(rng, data):
  """Returns the first part of bytes or of a text."""
  return data[: int(rng.integers(len(data)))]


def _neutral(rng, values):
  text = dump(values)
  texts = [
    text.replace('\n', '\r\n'),
    text.replace('\n', '  # why\n'),
    '\ufeff' + text,
    dump(values, default_flow_style=True),
    dump(shuffled(rng, values), indent=7),
    json.dumps(values),
    json.dumps(values, indent=3),
    '%YAML 1.1\n---\n' + text + '...\n',
    text.replace('methods:', 'methods: &all'),
  ]
  return pick(rng, texts), ACCEPT


def _alias(rng, values):
  """A value named once and used again, as a config may."""
  text = dump(values).replace('num_chains: ', 'num_chains: &n ')
  number = values.get('num_chains')
  key = 'num_repeats' if 'num_repeats' in values else 'num_seeds'
  if number is not None and values.get(key) == number:
    text = text.replace(f'{key}: {number}', f'{key}: *n')
  lines = text.splitlines()
  # An alias comes after what it names.
  lines.sort(key=lambda line: line.startswith(f'{key}: '))
  return '\n'.join(lines) + '\n', ACCEPT


def _deep(rng, values):
  depth = int(10 ** rng.uniform(1.5, 4.3))
  pairs = {
    'flow list': '[' * depth + ']' * depth,
    'open list': '[' * depth,
    'flow dict': '{a: ' * depth + '1' + '}' * depth,
    'block list': '\n  ' + '- ' * depth + 'x',
    'question': '\n  ' + '? ' * depth + 'x',
  }
  key = pick(rng, ['init', 'x', 'description', 'methods', 'name', 'target'])
  kept = {k: v for k, v in values.items() if k != key}
  return dump(kept) + f'{key}: {pick(rng, list(pairs.values()))}\n', REFUSE


def _bomb(rng, values):
  """Each line names the one before nine times."""
  width, height = 2 + int(rng.integers(8)), 5 + int(rng.integers(30))
  lines = ['a0: &a0 [x, x, x]']
  for i in range(1, height):
    lines.append(f'a{i}: &a{i} [{", ".join([f"*a{i - 1}"] * width)}]')
  key = pick(rng, ['init', 'description', 'x', 'name', 'num_chains'])
  kept = {k: v for k, v in values.items() if k != key}
  lines.append(f'{key}: *a{height - 1}')
  return '\n'.join(lines) + '\n' + dump(kept), REFUSE


def _recursive(rng, values):
  key = pick(rng, ['init', 'x', 'description', 'name', 'num_chains'])
  kept = {k: v for k, v in values.items() if k != key}
  loop = pick(rng, ['&a [*a]', '&a {k: *a}', '&a [[*a, 1]]', '&a {kind: *a}'])
  return dump(kept) + f'{key}: {loop}\n', REFUSE


def _alias_dict(rng, values):
  """Aliases of nothing, merges of what is no dict."""
  line = pick(
    rng,
    ['x: *none', '<<: 3', '<<: [1]', '<<: *none', '<<: {x: 1}', '*a : 1',
     '<<: <<', '&a &b x: 1', '? [a, b]\n: 1', '? {a: 1}\n: 2', 'x: =', '=: 1'],
  )  # fmt: skip
  return dump(values) + line + '\n', REFUSE


def _huge_number(rng, values):
  path = pick(rng, _counts(values))
  digits = int(10 ** rng.uniform(1.4, 4.5))
  number = pick(
    rng,
    ['9' * digits, '-' + '9' * digits, '1' + '0' * digits, '0x' + 'f' * digits,
     '0b' + '1' * digits, '1' + ':59' * (digits // 3), '1_' * digits + '0',
     '0b_', '0' * digits + '1', f'1e{digits}', '1' * digits + '.5', '0x_'],
  )  # fmt: skip
  return _replaced(values, path, number), REFUSE


def _counts(values):
  """Returns the paths of whole numbers that cannot be real ones."""
  paths = leaves(values, int)
  return [path for path in paths if str(path[-1]).startswith('num_')]


def _replaced(values, path, text):
  """Returns YAML with plain text in place of one entry."""
  mark = 'THE_PLACE'
  return dump(changed(values, path, mark)).replace(mark, text)


def _tag(rng, values):
  path = pick(rng, _counts(values))
  tagged = pick(
    rng,
    ['!!python/object/apply:os.getcwd []', '!!binary aGVsbG8=', '!!binary "?"',
     '!!set {a, b}', '!!omap [a: 1]', '!!pairs [a: 1]', '!!int x', '!!float x',
     '!!timestamp 2024-02-31', '!!bool maybe', '!mine 3', '!!null 3',
     '!!python/none', '2024-02-31', '2024-13-01 99:99:99',
     '!<tag:x> 1', '!!str [a]'],
  )  # fmt: skip
  return _replaced(values, path, tagged), REFUSE


def _duplicate(rng, values):
  key = pick(rng, list(values))
  return dump(values) + dump({key: values[key]}), REFUSE


def _encoding(rng, values):
  text = dump({**values, 'description': 'caf\u00e9 \u20ac'})
  return (
    pick(
      rng,
      [
        text.encode('cp1252'),
        text.encode('utf-16-le'),
        text.encode('utf-32'),
        text.encode() + b'\xff\xfe',
        text.encode('utf-16-be'),
        text.replace('caf', 'a\0b').encode(),
        text.replace('caf', '\x1b').encode(),
        text.replace('caf', '\x7f').encode(),
        text.replace('caf', '\ud800').encode('utf-8', 'surrogatepass'),
        text.replace('caf\u00e9 \u20ac', '"\\0"').encode(),
        text.replace('caf\u00e9 \u20ac', '"\\ud800"').encode(),
        text.replace('caf\u00e9 \u20ac', '"\\x07"').encode(),
        text.encode() + b'\0' * 100,
      ],
    ),
    REFUSE,
  )


def _file(rng, values):
  return (
    pick(
      rng,
      ['', '\n', '3', 'null', '- 1\n- 2', '"text"', '---\n---\n', '# no more',
       '[]', '{}', '\0', '{', ']', '- name: x', '!!map', 'a', '&a', '*a', '%',
       '%YAML 9.9\n---\na: 1', '@', '`', '\t', '? ', ': ', '- ', '|', '- - -'],
    ),
    REFUSE,
  )  # fmt: skip


def _documents(rng, values):
  return dump(values) + '---\n' + dump(values), REFUSE


def _large(rng, values):
  many = int(10 ** rng.uniform(5.6, 6.3))
  return (
    pick(
      rng,
      [
        dump(values) + '# ' + 'x' * many,
        dump(values) + ''.join(f'k{i}: {i}\n' for i in range(many // 10)),
        dump(values) + 'x: [' + '1,' * (many // 2) + ']',
        dump(values) + 'x: "' + 'y' * many + '"',
        dump(values) + '\n' * many,
        dump(values) + 'x: ' + "'" * many,
      ],
    ),
    REFUSE,
  )


def _truncate(rng, values):
  return truncated(rng, dump(values).encode()), EITHER


def _flip(rng, values):
  return flipped(rng, dump(values).encode()), EITHER


def _insert(rng, values):
  text = dump(values)
  at = int(rng.integers(len(text)))
  junk = pick(
    rng, list('[]{}:,-?*&!|>%@`"\'#\t~=<') + ['\n', ': ', '- ', '<<: ']
  )
  return text[:at] + junk * (1 + int(rng.integers(3))) + text[at:], EITHER


def _lines(rng, values):
  """Two lines swapped, or one repeated, moved in or left out."""
  lines = dump(values).splitlines()
  i, j = (int(k) for k in rng.integers(len(lines), size=2))
  kind = pick(rng, ['swap', 'repeat', 'indent', 'drop'])
  if kind == 'swap':
    lines[i], lines[j] = lines[j], lines[i]
  elif kind == 'repeat':
    lines.insert(i, lines[j])
  elif kind == 'indent':
    lines[i] = '  ' + lines[i]
  else:
    del lines[i]
  return '\n'.join(lines) + '\n', EITHER


def _no_file(rng, values):
  return dump(values), REFUSE


_MUTATIONS = {
  'neutral': _neutral,
  'alias': _alias,
  'deep nesting': _deep,
  'alias bomb': _bomb,
  'alias of itself': _recursive,
  'alias of nothing': _alias_dict,
  'huge number': _huge_number,
  'tag': _tag,
  'key twice': _duplicate,
  'encoding': _encoding,
  'no config in file': _file,
  'two documents': _documents,
  'large file': _large,
  'truncated': _truncate,
  'bytes flipped': _flip,
  'text inserted': _insert,
  'lines moved': _lines,
  'no file': _no_file,
}
