"""The checker of links sees those that lead nowhere, and the site has none."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests import site_links

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def _site(folder, link):
  (folder / 'a').mkdir()
  (folder / 'a' / 'index.html').write_text('<h1 id="top">A</h1>')
  (folder / 'style.css').write_text('')
  (folder / 'index.html').write_text(
    f'<link href="style.css"><a href="{link}">A</a><p id="here">'
  )
  return folder


@pytest.mark.parametrize(
  'link', ['a/', 'a/#top', 'a/index.html#top', '#here', 'a', 'https://b.c/#d']
)
def test_links_that_lead_somewhere_are_not_named(link, tmp_path):
  broken, num_links = site_links.broken_links(_site(tmp_path, link))
  assert not broken
  assert num_links == (1 if link.startswith('https') else 2)


@pytest.mark.parametrize(
  'link', ['b/', 'a/#bottom', '#there', '../other/', '/a/', 'a/top.png']
)
def test_links_that_lead_nowhere_are_named_with_their_page(link, tmp_path):
  broken, _ = site_links.broken_links(_site(tmp_path, link))
  assert broken == [('index.html', link)]


@pytest.mark.nightly
def test_the_site_has_no_broken_link(tmp_path):
  pytest.importorskip('mkdocs', reason='it comes with the extra `docs`')
  run = subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '--strict', '-d', str(tmp_path)],
    cwd=_ROOT,
    env=dict(os.environ, NO_MKDOCS_2_WARNING='1'),
    capture_output=True,
    text=True,
  )
  assert run.returncode == 0, run.stderr[-2000:]
  broken, num_links = site_links.broken_links(tmp_path)
  assert not broken and num_links > 1000
