"""Changes docstrings into a form that mkdocstrings shows correctly.

Markdown does not know three customs of the code. Formulas are indented by two
spaces, the code of an example stands under `Example:`, and a comment explains a
field of a NamedTuple.
"""

import re

# The content of a section is indented as well, and griffe reads it.
_SECTION = re.compile(r'[A-Z][A-Za-z ]*:$')
_EXAMPLE = 'Example:'


def with_fenced_formulas(text):
  """Returns a docstring with its indented blocks in fences.

  Args:
    text: Docstring without its common indentation. Blocks under a section such
      as `Args:` stay, and the block of an example becomes code.
  """
  text, _, example = text.partition(f'\n{_EXAMPLE}\n')
  lines, result = text.rstrip('\n').split('\n'), []
  in_section, block = False, []
  for line in [*lines, '']:
    if line.startswith(' ') and not in_section:
      block.append(line)
      continue
    if block and not line:
      block.append(line)  # A blank line inside, or the end of the block.
      continue
    if block:
      result += _fenced(block)
      block = []
    if line and not line.startswith(' '):
      in_section = _SECTION.match(line) is not None
    result.append(line)
  if block:
    result += _fenced(block)
  if example:
    result += [f'**{_EXAMPLE}**', *_fenced(example.split('\n'), 'python')]
  return '\n'.join(result).rstrip('\n')


def _fenced(block, language='text'):
  """Returns the lines of a block in a fence, without blank lines at its end."""
  while block and not block[-1]:
    block = block[:-1]
  margin = min(len(line) - len(line.lstrip()) for line in block if line)
  return ['', f'```{language}', *(line[margin:] for line in block), '```', '']


def comment_of(lines, number):
  """Returns the comment beside or above a field as one text.

  Args:
    number: Number of the field's line, from 1.
  """
  _, _, beside = lines[number - 1].partition('  # ')
  if beside:
    return beside.strip()
  found = []
  for line in reversed(lines[: number - 1]):
    if not line.lstrip().startswith('#'):
      break
    found.append(line.strip().lstrip('#').strip())
  return ' '.join(reversed(found))


def as_literal(text):
  """Returns text in which Markdown sees no emphasis and no HTML."""
  return re.sub(r'([*_<])', r'\\\1', text) if '`' not in text else text
