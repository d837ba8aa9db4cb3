"""Executes notebooks once with their outputs, and shows them as pages.

  python -m experiments.report notebooks docs/tutorials/*.ipynb

executes these notebooks in place. A page shows the outputs in the notebook, and
a build of the site executes nothing.
"""

import base64
import json
import os
import pathlib
import re

_SECONDS_PER_CELL = 300
# Lines that native code logs, which no reader needs.
_NATIVE_LOG = re.compile(
  r'(WARNING: All log messages before absl|[IWE]\d{4} ).*\n?'
)
# Warnings of the library about a run, without the line of the cell.
_WARNING = re.compile(r'\S+:\d+: (UserWarning: .*)\n  .*\n?')
_IMAGES = {'image/png': 'png', 'image/svg+xml': 'svg'}


def to_markdown(notebook, stem):
  """Returns a notebook as a Markdown page and its images.

  Args:
    stem: Stem of the file's name, with which the names of images begin.

  Returns:
    (text, {name of the image's file: bytes}).
  """
  parts, images = [], {}
  for cell in notebook['cells']:
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'markdown':
      parts.append(source)
      continue
    parts.append(_fenced(source, 'python'))
    for output in cell['outputs']:
      parts.append(_output(output, stem, images))
  return '\n\n'.join(parts) + '\n', images


def _output(output, stem, images):
  """Returns one output as Markdown; adds its image to `images`."""
  data = output.get('data', {'text/plain': output.get('text', '')})
  for kind, suffix in _IMAGES.items():
    if kind in data:
      content = ''.join(data[kind])
      name = f'{stem}_{len(images) + 1}.{suffix}'
      images[name] = (
        content.encode() if suffix == 'svg' else base64.b64decode(content)
      )
      return f'![Figure {len(images)}]({name})'
  text = ''.join(data['text/plain']).rstrip()
  return _fenced(text, 'text')


def _fenced(text, language):
  fence = '`' * max(3, *(len(t) + 1 for t in re.findall('`+', text)), 3)
  return f'{fence}{language}\n{text}\n{fence}'


def execute(path):
  """Executes a notebook in place.

  Raises:
    RuntimeError: If a cell fails, or if it writes to stderr anything except
      the library's warnings about a run.
  """
  import nbclient
  import nbformat

  os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
  notebook = nbformat.read(path, as_version=4)
  nbclient.NotebookClient(
    notebook,
    timeout=_SECONDS_PER_CELL,
    kernel_name='python3',
    record_timing=False,
    coalesce_streams=True,
    resources={'metadata': {'path': str(pathlib.Path(path).parent)}},
  ).execute()
  for cell in notebook.cells:
    if cell.cell_type == 'code':
      cell.outputs = [o for o in cell.outputs if _is_shown(path, o)]
  _write(path, notebook)


def _is_shown(path, output):
  """Returns whether an output is shown; keeps only the warnings of stderr.

  Raises:
    RuntimeError: If stderr has anything else.
  """
  if output.get('name') != 'stderr':
    return True
  text = _NATIVE_LOG.sub('', output.text)
  rest = _WARNING.sub('', text).strip()
  if rest:
    raise RuntimeError(f'{path}: a cell wrote to stderr:\n{rest}')
  output.text = ''.join(f'{said}\n' for said in _WARNING.findall(text))
  return bool(output.text)


def _write(path, notebook):
  """Writes the notebook without parts that differ between machines."""
  notebook.metadata = {
    'kernelspec': {
      'display_name': 'Python 3',
      'language': 'python',
      'name': 'python3',
    },
    'language_info': {'name': 'python'},
  }
  text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
  pathlib.Path(path).write_text(text + '\n', encoding='utf-8')
