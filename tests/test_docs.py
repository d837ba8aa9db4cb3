"""The site's sources: pages that exist, names that are covered, notebooks."""

import importlib
import inspect
import json
import pathlib
import re

import numpy as np
import pytest
import yaml

import tfp_adaptive as tfpa
from experiments.report import docstrings
from experiments.report import notebooks

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / 'docs'
NOTEBOOKS = sorted(DOCS.glob('tutorials/*.ipynb'))
# Figures of the site that are drawn when it is built.
_MADE = {'many_chains.png', 'rivals.png'}
_MOST_BYTES = 300_000

each_notebook = pytest.mark.parametrize(
  'path', NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS]
)


def _pages(nav):
  for entry in nav:
    if isinstance(entry, str):
      yield entry
    else:
      for value in entry.values():
        yield from [value] if isinstance(value, str) else _pages(value)


def _is_there(path):
  return path.is_file() or path.with_suffix('.ipynb').is_file()


def _nav():
  return yaml.safe_load((ROOT / 'mkdocs.yml').read_text())['nav']


def test_every_page_of_the_navigation_exists():
  pages = set(_pages(_nav()))
  missing = {p for p in pages if not _is_there(DOCS / p)}
  assert not missing


def test_every_page_and_notebook_is_in_the_navigation():
  # Results enter it by themselves.
  pages = set(_pages(_nav()))
  written = [p for p in DOCS.rglob('*.md') if 'results' not in p.parts]
  found = [p.relative_to(DOCS).as_posix() for p in written]
  found += [f'tutorials/{path.stem}.md' for path in NOTEBOOKS]
  assert set(found) <= pages


def _links(page):
  """Yields the relative links of a page, as (path or '', anchor or '')."""
  text = re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)
  for link in re.findall(r'\]\(([^)\s]+)\)', text):
    if not re.match(r'\w+:', link):
      path, _, anchor = link.partition('#')
      yield path, anchor


def _anchors(page):
  """Returns the anchors of a page's headings, as MkDocs and GitHub do."""
  text = re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)
  headings = re.findall(r'^#+ (.*)$', text, re.M)
  plain = [re.sub(r'[^\w\s-]', '', heading.lower()) for heading in headings]
  return {re.sub(r'\s+', '-', heading.strip()) for heading in plain}


def test_links_between_pages_lead_somewhere():
  pages = DOCS.rglob('*.md')
  for page in [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *pages]:
    for path, anchor in _links(page):
      found = page.parent / path if path else page
      of_site = DOCS in page.parents
      made = of_site and (found.name in _MADE or '{{' in path)
      assert made or (of_site and _is_there(found)) or found.is_file(), (
        f'{page}: {path}'
      )
      if anchor and found.suffix == '.md':
        assert anchor in _anchors(found), f'{page}: {path}#{anchor}'


def test_links_of_the_site_stay_in_the_site():
  # Those that leave it exist in a checkout, and nowhere in what is built.
  for page in DOCS.rglob('*.md'):
    for path, _ in _links(page):
      assert (page.parent / path).resolve().is_relative_to(DOCS), path


def test_the_results_that_the_navigation_names_are_discussed_in_their_index():
  index = (DOCS / 'results' / 'index.md').read_text()
  named = [p for p in _pages(_nav()) if p.startswith('results/')]
  linked = set(re.findall(r'\]\((\w+\.md)\)', index))
  assert {p.removeprefix('results/') for p in named} == linked | {'index.md'}


def test_every_example_is_run_by_some_test():
  # Those of results are how a number was had, from a run's own folder.
  pages = [p for p in DOCS.rglob('*.md') if 'results' not in p.parts]
  with_examples = {p.name for p in pages if '```python' in p.read_text()}
  # See the end of this file, test_pages.py, test_readme.py, test_extend.py.
  assert with_examples == {
    'index.md',
    'choose.md',
    'compile_time.md',
    'extend.md',
    'gpu.md',
    'long_runs.md',
    'scale.md',
    'simulators.md',
    'your_model.md',
  }


def test_the_modules_that_texts_name_as_commands_exist():
  pages = [*DOCS.rglob('*.md'), *ROOT.glob('*.md'), ROOT / 'Makefile']
  pages += [*(ROOT / 'configs').rglob('*.yaml')]
  sources = [*(ROOT / 'experiments').rglob('*.py')]
  named = {
    name
    for page in [*pages, *sources]
    for name in re.findall(r'-m\s+(experiments(?:\.\w+)+)', page.read_text())
  }
  assert named
  for name in named - {'experiments.studies.NAME'}:
    path = ROOT.joinpath(*name.split('.'))
    if (path / '__main__.py').is_file():
      continue
    path = path.with_suffix('.py')
    assert "__name__ == '__main__'" in path.read_text(), name


def test_every_study_is_in_the_table_with_a_record_that_exists():
  page = (DOCS / 'reproduce.md').read_text()
  _, _, studies = page.partition('## Studies')
  rows = re.findall(
    r'^\| [^|]+ \| `(experiments.*?)` \| (.*) \|$', studies, re.M
  )
  named = {command.split()[0].rpartition('.')[2] for command, _ in rows}
  with_command = {
    path.stem
    for path in (ROOT / 'experiments' / 'studies').glob('*.py')
    if 'argparse.ArgumentParser' in path.read_text()
  }
  # The other side of bench_blackjax has no command of its own.
  assert named == {*with_command, 'experiments'}
  for _, records in rows:
    for name in re.findall(r'`(\S+)`', records):
      assert (ROOT / name).is_file(), name


def _public_names():
  for name in tfpa.__all__:
    value = getattr(tfpa, name)
    if inspect.ismodule(value):
      yield from (f'{name}.{inner}' for inner in value.__all__)
    elif not isinstance(value, str):
      yield name


def test_every_public_name_has_an_entry_in_the_api():
  text = '\n'.join(p.read_text() for p in DOCS.glob('api/*.md'))
  shown = set(re.findall(r'heading: tfpa\.(\S+)', text))
  assert shown == set(_public_names())


def test_api_entries_name_the_object_that_their_heading_says():
  text = '\n'.join(p.read_text() for p in DOCS.glob('api/*.md'))
  entries = re.findall(r'::: (\S+)\n    options:\n      heading: (\S+)', text)
  assert len(entries) == text.count(':::')
  for path, heading in entries:
    module, _, name = path.rpartition('.')
    value = tfpa
    for part in heading.split('.')[1:]:
      value = getattr(value, part)
    assert getattr(importlib.import_module(module), name) is value


@each_notebook
def test_notebooks_are_executed_and_small(path):
  assert path.stat().st_size < _MOST_BYTES
  cells = json.loads(path.read_text())['cells']
  code = [c for c in cells if c['cell_type'] == 'code']
  counts = [cell['execution_count'] for cell in code]
  assert counts == list(range(1, len(code) + 1)), 'not run in order'
  outputs = [output for cell in code for output in cell['outputs']]
  assert any('image/png' in o.get('data', {}) for o in outputs)
  assert any(o.get('name') == 'stdout' for o in outputs)
  for output in outputs:
    assert output['output_type'] != 'error'
    if output.get('name') == 'stderr':
      # What `tfpa.sample` says of a run, and nothing else.
      lines = ''.join(output['text']).splitlines()
      assert lines and all(line.startswith('UserWarning: ') for line in lines)
    assert not re.search(r'/(home|root|work|tmp|usr)/', json.dumps(output))


@each_notebook
def test_notebooks_become_pages_with_their_figures(path):
  notebook = json.loads(path.read_text())
  text, images = notebooks.to_markdown(notebook, path.stem)
  assert text.startswith('# ')
  assert text.count('```') % 2 == 0
  for name, content in images.items():
    assert f'({name})' in text
    assert content[:4] == b'\x89PNG'


def test_outputs_are_fenced_even_where_they_hold_fences():
  cell = {
    'cell_type': 'code',
    'source': ['print("```")'],
    'outputs': [{'name': 'stdout', 'text': ['```\n', 'x\n']}],
  }
  text, images = notebooks.to_markdown({'cells': [cell]}, 'a')
  assert text == '````python\nprint("```")\n````\n\n````text\n```\nx\n````\n'
  assert not images


def test_formulas_are_fenced_and_sections_left_alone():
  text = 'First.\n\n  a = b\n\n    c\n\nLast:\n\n  d\n\nArgs:\n  e: f\n    g.'
  assert docstrings.with_fenced_formulas(text) == (
    'First.\n\n\n```text\na = b\n\n  c\n```\n\n'
    'Last:\n\n  d\n\nArgs:\n  e: f\n    g.'
  )


def test_the_example_of_a_docstring_becomes_python():
  text = 'Builds.\n\nArgs:\n  a: b.\n\nExample:\n  if a:\n    b()\n\n  c()'
  assert docstrings.with_fenced_formulas(text) == (
    'Builds.\n\nArgs:\n  a: b.\n\n**Example:**\n\n'
    '```python\nif a:\n  b()\n\nc()\n```'
  )


def test_fields_are_explained_by_the_comment_beside_or_above():
  lines = [
    '# Not this.',
    'x: int',
    '# Two',
    '# lines.',
    'y: int',
    'z: int  # z',
  ]
  assert docstrings.comment_of(lines, 5) == 'Two lines.'
  assert docstrings.comment_of(lines, 6) == 'z'
  assert docstrings.comment_of(['w: int', 'x: int'], 2) == ''


def test_home_begins_with_the_example_of_the_readme():
  texts = [
    path.read_text() for path in (DOCS / 'index.md', DOCS.parent / 'README.md')
  ]
  home, readme = (
    re.search(r'```python\n(.*?)```', text, re.DOTALL).group(1)
    for text in texts
  )
  assert home == readme


@pytest.mark.full
def test_the_examples_of_the_first_page_run_in_turn():
  text = (DOCS / 'index.md').read_text()
  names, moved = {}, []
  # The first example is the first of README.md, which runs there.
  for example in re.findall(r'```python\n(.*?)```', text, re.DOTALL)[1:]:
    exec(compile(example, 'index.md', 'exec'), names)
    moved.append(names['result'].states)
  # The last example is sample_chain's, with states of its own.
  gaussian, (location, scale), _, _ = moved
  assert gaussian.shape == (5000, 8, 2)
  np.testing.assert_allclose(gaussian.std(axis=(0, 1)), 1.0, rtol=0.05)
  assert names['states'].shape == (500, 4, 2)
  assert np.std(names['states'][..., 0]) > 0.25
  # Of 50 observations with deviation 2, a flat prior.
  observed = names['observed'].numpy()
  np.testing.assert_allclose(location.mean(), observed.mean(), atol=0.05)
  np.testing.assert_allclose(scale.mean(), observed.std(), rtol=0.1)
  assert names['tree'].posterior['scale'].sizes == {
    'chain': 8, 'draw': 5000
  }  # fmt: skip


@pytest.mark.full
def test_the_examples_of_scale_run(tmp_path, monkeypatch):
  text = (DOCS / 'scale.md').read_text()
  *of_draws, of_devices = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  monkeypatch.chdir(tmp_path)
  names = {}
  for example in of_draws:
    exec(compile(example, 'scale.md', 'exec'), names)
  assert names['result'].states.shape == (5000, 4, 20)
  np.testing.assert_allclose(names['first'].std(), 1.0, rtol=0.1)
  np.testing.assert_array_equal(
    names['first'].T, names['result'].states[:, :, 0]
  )
  exec(compile(of_devices, 'scale.md', 'exec'), names)
  assert names['result'].states.shape == (500, 8, 20)
  np.testing.assert_allclose(names['result'].states.std(), 1.0, rtol=0.1)


@pytest.mark.nightly
def test_the_examples_of_a_model_of_ones_own_have_their_exact_means():
  text = (DOCS / 'your_model.md').read_text()
  names, found = {}, []
  for example in re.findall(r'```python\n(.*?)```', text, re.DOTALL):
    exec(compile(example, 'your_model.md', 'exec'), names)
    found.append(names['posterior'])
  joint, flat, density = found
  assert joint.converged and flat.converged and density.converged
  # Gamma(2, 1) and four counts whose sum is ten: Gamma(12, 5).
  np.testing.assert_allclose(joint.states.rate.mean(), 2.4, rtol=0.03)
  # The mean has a t distribution about that of the data.
  np.testing.assert_allclose(flat.states.mean.mean(), 17.6 / 6, rtol=0.03)
  # The scale of effects that nothing was seen of keeps its prior, exp(1).
  np.testing.assert_allclose(density.states[0].mean(), 1.0, rtol=0.1)


class _Stream(dict):
  text = property(
    lambda self: self['text'], lambda self, text: self.update(text=text)
  )


def test_of_what_cells_write_to_stderr_readers_see_the_warnings_of_a_run():
  log = 'I0000 00:00:1 cudart_stub.cc:31] no GPU\n'
  said = '/tmp/cell.py:3: UserWarning: R-hat is 2.\n  run = sample()\n'
  shown = _Stream(name='stderr', text=log + said)
  assert notebooks._is_shown('a', shown)
  assert shown.text == 'UserWarning: R-hat is 2.\n'
  assert not notebooks._is_shown('a', _Stream(name='stderr', text=log))
  with pytest.raises(RuntimeError, match='wrote to stderr'):
    notebooks._is_shown('a', _Stream(name='stderr', text='Traceback'))
